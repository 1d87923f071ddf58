#!/usr/bin/env bash
# Keeps the folders apart: few units depend on a strategy's own headers, few lines outside the plan ask which kind of
# strategy runs, few files know parameter servers and pipelines, cycles of units stay small, no folder becomes large,
# and few types share their name with another type. A bound may be lowered, not raised.
#
#   usage: rooms_test.sh
#
# Prints each figure with its bound; exits 1 if one is exceeded.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python3 - <<'PYTHON'
import collections, glob, os, re

SOURCES = [f for top in ("src", "layers", "data", "tools") for f in glob.glob(f"{top}/**", recursive=True)
           if re.search(r"\.(h|cpp|cu|cuh)$", f)]
TEXT = {f: open(f).read() for f in SOURCES}
INCLUDES = {f: [i for i in re.findall(r'^\s*#\s*include "([^"]+)"', TEXT[f], re.M) if i in TEXT] for f in SOURCES}


def rebuilt_after(header):
    """The number of files that the compiler sees again after a change of the header."""
    users = collections.defaultdict(set)
    for file, headers in INCLUDES.items():
        for each in headers:
            users[each].add(file)
    seen, rest = set(), [header]
    while rest:
        for user in users[rest.pop()] - seen:
            seen.add(user)
            rest.append(user)
    return sum(not f.endswith((".h", ".cuh")) for f in seen)


def unit(file):
    return os.path.splitext(file)[0]


def largest_cycle():
    """The number of units (x.h and x.cpp) that include each other in a circle."""
    reach = collections.defaultdict(set)
    for file, headers in INCLUDES.items():
        reach[unit(file)] |= {unit(each) for each in headers} - {unit(file)}

    def reached(start):
        seen, rest = set(), [start]
        while rest:
            new = reach[rest.pop()] - seen
            seen |= new
            rest += new
        return seen

    closure = {each: reached(each) for each in list(reach)}
    return max((sum(each in closure.get(other, ()) for other in closure[each]) for each in closure if each in closure[each]),
               default=0)


# Without comments and strings.
CODE = {f: re.sub(r"//[^\n]*", "", re.sub(r'"(\\.|[^"\\\n])*"', '""', text)) for f, text in TEXT.items()}


def lines_with(words, own):
    """The lines and the files with one of the words, apart from a strategy's own files."""
    found = {f: sum(bool(re.search(rf"\b({words})", line)) for line in CODE[f].split("\n")) for f in CODE
             if not re.search(own, f)}
    return sum(found.values()), sum(count > 0 for count in found.values())


asks = lines_with(r"(in_stages|split|averages|shares_update|copies_gradients|shares_rows)\(\)", "^src/plan/")
# src/comm tolerates the loss of any ranks, so its tolerate_loss() does not count.
servers = lines_with(r"(serves\(|(server|servers|server_|kServers|ParameterServer|ServedSync|parameter_server|push_filters"
                     r"|FilterSettings|ConsistencyRules|ServerRequest|\.tolerate_loss)\b)",
                     r"^src/(server|simulate)/"
                     r"|^src/plan/(consistency|filter_settings|server_request|strategies/parameter_server)"
                     r"|/(served_sync|strategy_settings|cmd_simulate|http_server|serve)\.")
# StepProgram::micro_batches_ belong to gradient accumulation, which all other strategies have.
pipelines = lines_with(r"((in_stages|StageTask|stage_tasks|StageLinks|StageOrder|updates_each_micro_batch|copies_weights"
                       r"|stages_of|micro_batches)\b|[pP]ipeline)",
                       r"^src/plan/(pipeline|strategies/pipeline)|/(stage_links|weight_copies|strategy_settings)\.")
folders = collections.Counter(os.path.dirname(f) for f in SOURCES)

TYPE = re.compile(r"\b(?:class|struct|enum)(?: class)? (?:alignas\([^)]*\) )?(?:\w+::)*(\w+)(?: final)?(?: ?:[^:;{][^;{]*)? \{")


def shared_type_names():
    """The names that several types have, also inside other classes."""
    types = collections.Counter(name for text in TEXT.values() for name in TYPE.findall(re.sub(r"//.*", "", text)))
    return sorted(name for name, count in types.items() if count > 1)


wrong = False
for name, figure, bound in (
        ("files rebuilt after a change of src/server/push_filters.h", rebuilt_after("src/server/push_filters.h"), 15),
        ("files rebuilt after a change of src/server/parameter_server.h",
         rebuilt_after("src/server/parameter_server.h"), 15),
        ("units in the largest cycle", largest_cycle(), 4),
        ("lines outside src/plan that ask for the kind of strategy", asks[0], 5),
        ("files outside src/plan that ask for it", asks[1], 4),
        ("lines outside their own files that speak of parameter servers", servers[0], 3),
        ("files with such lines", servers[1], 3),
        ("lines outside their own files that speak of pipelines", pipelines[0], 6),
        ("files with such lines", pipelines[1], 6),
        ("files in the largest folder", max(folders.values()), 60),
        ("names of types that several types have", len(shared_type_names()), 15)):
    print(f"{name}: {figure} (at most {bound})")
    wrong = wrong or figure > bound
if wrong:
    raise SystemExit("FAILED: see above; docs/architecture.md says what belongs in which folder")
PYTHON
echo "passed"
