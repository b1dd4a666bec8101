// These functions say which texts must not be seen, and take them out of what is shown or kept. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launch {

// Returns the texts that are masked so that none of these secrets is seen: each as a whole and by its lines, since
// output is masked line by line, and in the forms in which programs quote it. Those of less than four bytes are left
// out: they are parts of ordinary words. The longest come first.
std::vector<std::string> hidden_texts(const std::vector<std::string>& secrets);

// Returns the text with "***" in place of each of these texts. Those that begin another one come after it.
std::string masked(std::string_view text, const std::vector<std::string>& hidden);

// Returns how many bytes at the end of the text begin this secret.
std::size_t begun_at_end(std::string_view text, std::string_view secret);

// Does the same as masked() for a text that may have been cut: also in place of what one of them begins with, if that
// is its end.
std::string masked_at_cut(std::string_view text, const std::vector<std::string>& hidden);

// Masks the texts in all values of a JSON value of any type of nlohmann's. They are found there whatever they hold,
// where in JSON's own text a quotation mark would stand in other characters.
template <typename Json>
void mask_values(Json& json, const std::vector<std::string>& hidden) {
  if (json.is_structured()) {
    for (auto& item : json) {
      mask_values(item, hidden);
    }
  } else if (json.is_string() && !hidden.empty()) {
    json = masked(json.template get_ref<const std::string&>(), hidden);
  }
}

}  // namespace hvd::launch
