// The manual is a set of Markdown pages that are part of the program, so that `hvdrun help` shows them wherever it is
// installed. The pages are the files of launcher/docs and runtime/docs; CMake writes them into manual_pages.cpp. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.h"

namespace hvd::cli {

struct ManualPage {
  std::string_view topic;  // the file's name without ".md"
  std::string_view text;   // begins with "# TITLE"
};

// Returns all pages, in the order in which a user needs them.
[[nodiscard]] const std::vector<ManualPage>& manual_pages();

// Returns "Hosts, SSH and other ways to reach a node": the page's first line without its "# ".
[[nodiscard]] std::string_view manual_title(const ManualPage& page);

// Returns the list of topics, a line for each.
[[nodiscard]] std::string manual_topics();

// Returns the page of a topic. The beginning of a topic's name is enough where no other one begins so; an error names
// the nearest topic.
Result<std::string> manual_page(const std::string& topic);

}  // namespace hvd::cli
