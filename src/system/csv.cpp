#include "src/system/csv.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace owt {

std::string csv_quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
}

void read_csv_rows(std::string_view text, const std::function<void(CsvRow row)>& take) {
  CsvRow row;
  std::string cell;
  bool quoted = false;
  const auto end_cell = [&] { row.push_back(std::exchange(cell, {})); };
  const auto end_row = [&] {
    end_cell();
    take(std::exchange(row, {}));
  };
  for (size_t i = text.starts_with("\xEF\xBB\xBF") ? 3 : 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '"' && i + 1 < text.size() && text[i + 1] == '"')
      cell += c, ++i;
    else if (c == '"')
      quoted = !quoted;
    else if (quoted)
      cell += c;
    else if (c == ',')
      end_cell();
    else if (c == '\n')
      end_row();
    else if (c != '\r')
      cell += c;
  }
  if (!cell.empty() || !row.empty()) end_row();
}

CsvTable csv_table_from(const std::string& text) {
  CsvTable table;
  read_csv_rows(text,
                [&](CsvRow row) { (table.head.empty() ? table.head : table.rows.emplace_back()) = std::move(row); });
  return table;
}

std::optional<size_t> CsvTable::column(const std::string& name) const {
  const auto found = std::find(head.begin(), head.end(), name);
  return found == head.end() ? std::nullopt : std::optional(static_cast<size_t>(found - head.begin()));
}

std::string CsvTable::text(const CsvRow& row, const std::string& name) const {
  const auto at = column(name);
  return at && *at < row.size() ? row[*at] : "";
}

double CsvTable::number(const CsvRow& row, const std::string& name) const {
  const std::string cell = text(row, name);
  double value = 0;
  std::from_chars(cell.data(), cell.data() + cell.size(), value);
  return value;
}

}  // namespace owt
