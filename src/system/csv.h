// CSV files (RFC 4180): timing.csv, predictions, confusions, tables of targets.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace owt {

std::string csv_quoted(const std::string& text);  // a cell, in quotes if it needs them

using CsvRow = std::vector<std::string>;

// Calls take() for each row in order. A byte order mark is no part of the first cell.
void read_csv_rows(std::string_view text, const std::function<void(CsvRow row)>& take);

struct CsvTable {
  CsvRow head{};
  std::vector<CsvRow> rows{};

  std::optional<size_t> column(const std::string& name) const;
  // The cell of a row in this column; empty, or 0, if there is none.
  std::string text(const CsvRow& row, const std::string& name) const;
  double number(const CsvRow& row, const std::string& name) const;
};

CsvTable csv_table_from(const std::string& text);

}  // namespace owt
