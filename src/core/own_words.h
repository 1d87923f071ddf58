// What is said of errors and values in words of this program, whichever library found them.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "src/core/config.h"

namespace owt {

// What an exception says: Error's text; "out of memory"; the system's reason with the file. Others say what they do
// with "unexpected error" in front.
std::string own_words(const std::exception& e);

// The front and the end of a text that is too long for a message, which begins with what is wrong and ends with the
// cure.
std::string fit_for_message(const std::string& text);

// "at least 2", "more than 0", "1 to 16777216"; empty: any.
std::string range_text(const Range& range);

// The recipe's key for which other programs have this word: "lr" is "optimizer.learning_rate"; empty: none known.
std::string key_for(std::string_view word);

}  // namespace owt
