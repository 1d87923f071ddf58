// A TOML document: the text of a file, and what was set or put into it since.
#pragma once

#include <toml++/toml.h>

#include <memory>
#include <string>
#include <vector>

namespace owt {

// What a document is made from. toml++ forgets line numbers when it copies a node, so a changed document is made anew.
struct Recipe {
  struct Edit {
    // set(). In an array of tables a word of the key is the number of one: model.layer.0.out.
    std::string dotted_key, value;
    std::shared_ptr<const Recipe> table;  // put()
  };
  std::string text, name;
  std::vector<Edit> edits;
};

// Throws Error with the line of the text, or with the edit.
toml::table document_from(const Recipe& recipe);

}  // namespace owt
