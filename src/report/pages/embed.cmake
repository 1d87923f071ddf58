# Writes OUTPUT, a C++ file that defines the texts of page_texts.h: the files of this folder without indentation and
# without comments that take whole lines.
function(embed name file)
  file(READ ${ROOT}/${file} text)
  string(REGEX REPLACE "\n +" "\n" text "\n${text}")
  string(REGEX REPLACE "\n//[^\n]*" "" text "${text}")
  string(REGEX REPLACE "\n/\\*[^\n]*\\*/" "" text "${text}")
  file(APPEND ${OUTPUT} "const char* const owt::${name} = R\"text(${text})text\";\n")
endfunction()

file(WRITE ${OUTPUT} "#include \"src/report/pages/page_texts.h\"\n\n")
embed(kChartScript charts.js)
embed(kLiveScript live.js)
embed(kPageStyle page.css)
