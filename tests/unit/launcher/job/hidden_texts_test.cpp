// launcher/job/hidden_texts: no secret is seen in what is shown or kept, in whichever form it stands there.
#include "launcher/job/hidden_texts.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "runtime/base/text.h"

namespace hvd::launch::hidden_texts_test {

TEST_CASE("a secret is masked as a whole and by its lines, and short texts are left") {
  const auto hidden = hidden_texts({"key\nlong-line\r\nab\nother line", "abc"});
  CHECK(masked("a long-line, the other line, key ab abc", hidden) == "a ***, the ***, key ab abc");
  CHECK(masked("<key\nlong-line\r\nab\nother line>", hidden) == "<***>");
  CHECK(masked("<key long-line  ab other line>", hidden) == "<***>");  // as one line, in the news of a failure
}

TEST_CASE("a secret that begins another one leaves nothing of that") {
  CHECK(masked("tokentoken-1", hidden_texts({"token", "token-1"})) == "******");
}

TEST_CASE(
    "a secret is masked where JSON, Python or a shell has quoted it, and where its control characters are shown") {
  const std::string secret = "it's \"a\" \\ \x1b of\tmine";
  const auto hidden = hidden_texts({secret});
  CHECK(masked(quoted_word(secret), hidden) == "'***'");
  CHECK(masked(R"('it\'s "a" \\ ? of?mine')", hidden) == "'***'");
  CHECK(masked(R"("it's \"a\" \\ ? of?mine")", hidden) == "\"***\"");
  CHECK(masked(without_controls(secret, "\n\t"), hidden) == "***");
}

TEST_CASE("of a text that was cut the beginning of a secret is masked too") {
  const auto hidden = hidden_texts({"s3cr3t-word"});
  CHECK(masked_at_cut("the token s3cr3t-w", hidden) == "the token ***");
  CHECK(masked_at_cut("s3cr3t-word s3cr3t-word", hidden) == "*** ***");
  CHECK(masked_at_cut("the token s3c", hidden) == "the token s3c");
  CHECK(masked_at_cut("", hidden).empty());
}

TEST_CASE("the values of JSON are masked, and its names are not") {
  auto json = nlohmann::json::parse(R"({"token": ["a \"to\\ken\" b", 1, {"x": "token"}]})");
  mask_values(json, hidden_texts({"\"to\\ken\"", "token"}));
  CHECK(json == nlohmann::json::parse(R"({"token": ["a *** b", 1, {"x": "***"}]})"));
}

}  // namespace hvd::launch::hidden_texts_test
