// This program's wording of errors and values, whichever library reported them.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "src/system/config.h"

namespace owt {

// The message of an exception: Error's text; "out of memory"; the system's reason with the file. For other exceptions:
// their text after "unexpected error".
std::string own_words(const std::exception& e);

// The beginning and the end of a text that is too long for a message: messages begin with the problem and end with the
// cure.
std::string fit_for_message(const std::string& text);

// 16777216, not 1.67772e+07; numbers with a fraction as short as they can be read back.
std::string number_text(double value);

// "at least 2", "more than 0", "1 to 16777216"; empty for any number.
std::string range_text(const Range& range);

// What a word of other programs is called here: "lr" is the recipe's key "optimizer.learning_rate", "pretrained" the
// option "weights". Empty if none is known.
std::string key_for(std::string_view word);

}  // namespace owt
