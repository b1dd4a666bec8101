// Listing is a table in the form of `az ... -o table`: a line of dashes below the headings, two spaces between columns,
// text to the left and numbers to the right. Pure.
#pragma once

#include <string>
#include <vector>

namespace hvd::launch {

struct ListingColumn {
  std::string heading;
  bool is_number = false;
};

// Each row has a text for each column. A character that a terminal could take for a command is shown as '?'.
std::string listing(const std::vector<ListingColumn>& columns, const std::vector<std::vector<std::string>>& rows);

}  // namespace hvd::launch
