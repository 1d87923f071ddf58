// A TOML document: the text of a file and the edits made to it.
#pragma once

#include <toml++/toml.h>

#include <memory>
#include <string>
#include <vector>

namespace owt {

// The source of a document. toml++ forgets line numbers when it copies a node, so a changed document is parsed again.
struct Recipe {
  struct Edit {
    // set(). In an array of tables, a word of the key is the number of a table: model.layer.0.out.
    std::string dotted_key, value;
    std::shared_ptr<const Recipe> table;  // put()
  };
  std::string text, name;
  std::vector<Edit> edits;
};

// Throws Error with the line of the text, or with the failing edit.
toml::table document_from(const Recipe& recipe);

}  // namespace owt
