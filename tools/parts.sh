# The parts of a long check. Each part is timed. At the end the reasons for failures are repeated, in at most one
# screen.
# Sourced by tools/test.sh and .ci/run.

work=$(mktemp -d)  # removed at the end of the script
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT  # programs run by a part may exit with 0 after an interrupt
part_times=() failed_parts=()

# part NAME COMMAND...: runs the command; returns its status. 77 means that it could not run here, which is no failure.
part() {
  local name=$1 begin=$SECONDS status log=$work/part_${#part_times[@]} end=''
  shift
  printf '\n== %s\n' "$name"
  "$@" 2>&1 | tee "$log"
  status=${PIPESTATUS[0]}
  case $status in
    0) ;;
    77) end=" (skipped)" ;;
    *)
      end=" (failed)"
      failed_parts+=("$name")
      { echo "-- $name" && first_failing_lines "$log"; } >>"$work/why"
      ;;
  esac
  part_times+=("$(printf '%5d s  %s%s' $((SECONDS - begin)) "$name" "$end")")
  return "$status"
}

# end_of_parts: prints the times and then the failures; ends the script, with 1 if a part failed.
end_of_parts() {
  local most=40 more
  printf '\n'
  printf '%s\n' "${part_times[@]}"
  if [ "${#failed_parts[@]}" = 0 ]; then
    printf '\nAll passed.\n'
    exit 0
  fi
  {
    printf '\n== Failed:'
    printf ' %s;' "${failed_parts[@]}"
    printf '\n'
    head -n $most "$work/why"
    more=$(($(wc -l <"$work/why") - most))
    [ "$more" -le 0 ] || echo "... $more more of these lines; all of them are above"
  } >&2
  exit 1
}

# first_failing_lines LOG: the failed cases and their first lines. It knows compilers, ctest with the output of failed
# tests, GoogleTest, sanitizers and shell tests. If no line looks like a reason, it prints the last lines. With more
# failed tests there are fewer lines for each.
first_failing_lines() {
  awk '
    BEGIN { logs = 0 }
    # The output of a failed test is read like a separate log.
    /^ *[0-9]+\/[0-9]+ Test +#[0-9]+: / {
      if (inside) report()
      inside = /\*\*\*/ && !/\*\*\*Skipped/
      in_tests = 1
      if (inside) name = name_of($0)
      next
    }
    /^ +Start +[0-9]+: / || /^[0-9]+% tests passed/ { if (inside) report(); inside = 0; in_tests = 1; next }
    (inside || !in_tests) && NF > 0 { line[lines++] = substr($0, 1, 160) }
    END {
      if (inside || !logs) report()
      most = logs < 4 ? 12 : logs > 12 ? 3 : int(40 / logs) - 1
      for (i = 0; i < logs; ++i) for (k = 0; k < count[i] && k <= most; ++k) print said[i, k]
    }

    function name_of(text) {
      sub(/^[^:]*: */, "", text)
      gsub(/ *\.*\*\*\*/, ": ", text)
      sub(/ +[0-9.]+ sec.*/, "", text)
      return text
    }
    function say(text) { said[logs, count[logs]++] = text }
    # The number of lines after this one that belong to it; -1: the line is no reason.
    function behind_reason(text) {
      if (text ~ /^FAILED: (\[code=[0-9]+\] )?[^ ]+ *$/) return 0  # by ninja; the next line is the command
      if (text ~ /: Failure$|^FAILED|broken (promise|by)|terminate called/) return 5
      if (text ~ /ERROR: |WARNING: ThreadSanitizer|runtime error: /) return 5
      if (googletest) return -1  # a test may expect such words in the output
      if (text ~ /(^|[: ])(fatal )?error: |undefined reference to|multiple definition of|CMake Error/) return 3
      if (text ~ /^Traceback|^FAIL /) return 5
      return -1
    }
    function report(   i, more, left, begin, run, found, cases, of_case) {
      if (name != "") say(name)
      googletest = cases = 0
      for (i = 0; i < lines; ++i) {
        if (line[i] ~ /^\[ RUN      \]/) { googletest = 1; begin = i }
        if (line[i] ~ /^\[  FAILED  \] .* \([0-9]+ ms\)$/) {
          split(line[i], of_case, "[] ]+")
          names = (cases++ ? names " " : "") of_case[3]
        }
      }
      if (cases > 1) say("   " cases " cases: " substr(names, 1, 400))
      for (i = 0; i < lines; ++i) {
        if (line[i] ~ /^\[ RUN      \]/) run = line[i]
        if (line[i] ~ /^\[ +(FAILED|OK) +\]/) left = 0
        more = behind_reason(line[i])
        if (more >= 0) {
          found = 1
          if (run != "") say("   " run)
          run = ""
          if (more >= left) left = more + 1
        }
        if (left > 0) { say("   " line[i]); --left }
      }
      if (!found) for (i = lines - 8 > begin ? lines - 8 : begin + 0; i < lines; ++i) say("   " line[i])
      lines = 0
      ++logs
    }
  ' "$1"
}
