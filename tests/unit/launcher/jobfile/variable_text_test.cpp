// launcher/jobfile: texts that become words of a shell.
#include "launcher/jobfile/variable_text.h"

#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace hvd::launch::variable_text_test {

TEST_CASE("texts become shell words that mean exactly them, but for variables") {
  CHECK(quote_with_variables("$A/b c${D}") == "\"${A-}\"'/b c'\"${D-}\"");
  CHECK(quote_with_variables("$(touch x) $1 ${A:-b} $") == "'$(touch x) $1 ${A:-b} $'");
  std::vector<std::string> missing;
  const auto value_of = [](const std::string& name) {
    return name == "A" ? std::optional<std::string>("1") : std::nullopt;
  };
  CHECK(expand_variables("$A-${B}-$A", value_of, missing) == "1--1");
  CHECK(missing == std::vector<std::string>{"B"});
}

TEST_CASE("arguments are split and quoted as a shell does, and nothing in them is executed") {
  const auto words = [](const std::string& text) { return read_arguments(text).value().shell_text; };
  CHECK(words("--a 1  --b=$X 'c d' \"e $Y\"") == "--a 1 '--b='${X-} 'c d' 'e '\"${Y-}\"");
  CHECK(words("*.csv; rm -rf $(x)") == "*'.csv;' rm -rf '$(x)'");
  CHECK(words("$A/d*/'x*'?[1] \"*\"") == "${A-}/d*/'x*'?'[1]' '*'");
  CHECK_FALSE(read_arguments("a;b").value().is_plain);
  CHECK(read_arguments("'a;b'").value().is_plain);
  CHECK(read_arguments("a/*/b").value().has_pattern);
  CHECK_FALSE(read_arguments("'*' \"?\" [ab] \\*").value().has_pattern);
  CHECK_FALSE(read_arguments("it's").ok());
  CHECK(words("''") == "''");
  CHECK(words("--a 1 \\\n --b 2\\\r\n3") == "--a 1 --b 23");  // a line that goes on in the next one
  CHECK(words("\"a\\\nb\" 'c\\\nd'") == "ab 'c\\\nd'");
  for (const std::string text : {"a b", "$(x)", "\"\\", "it's", "`x`", "a\nb", "\\\\"}) {
    const auto back = read_arguments(argument_of(text));
    REQUIRE(back.ok());
    CHECK(back.value().shell_text.find("$(x)\"") == std::string::npos);
  }
}

}  // namespace hvd::launch::variable_text_test
