// CSV files with a header (RFC 4180), as owt writes them: timing.csv, predictions, confusions.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace owt {

struct CsvTable {
  std::vector<std::string> head{};
  std::vector<std::vector<std::string>> rows{};

  std::optional<size_t> column(const std::string& name) const;
  // The cell of a row in this column; empty, or 0, if there is none.
  std::string text(const std::vector<std::string>& row, const std::string& name) const;
  double number(const std::vector<std::string>& row, const std::string& name) const;
};

CsvTable csv_table_from(const std::string& text);

}  // namespace owt
