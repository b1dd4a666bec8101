// --rsh COMMAND: its words, and what stands in them for one host.
#include "launcher/command/rsh_template.h"

#include <doctest/doctest.h>

namespace hvd::launch::rsh_template_test {
namespace {

using Words = std::vector<std::string>;

Words split(std::string_view text) {
  const auto words = split_shell_words(text);
  REQUIRE_MESSAGE(words.ok(), text);
  return words.value();
}

Words words_of(std::string_view text, const NodeTarget& target) {
  const auto command = RshTemplate::parse(text);
  REQUIRE_MESSAGE(command.ok(), text);
  const auto words = command.value().words(target, {"me", 22});
  REQUIRE_MESSAGE(words.ok(), words.error().message());
  return words.value();
}

std::string refusal(std::string_view text, const NodeTarget& target) {
  const auto words = RshTemplate::parse(text).value().words(target, {"me", 22});
  return words.ok() ? "(accepted)" : words.error().message();
}

TEST_CASE("words are split as a POSIX shell splits quotes and backslashes") {
  CHECK(split("") == Words{});
  CHECK(split("  \t\n ") == Words{});
  CHECK(split("ssh  -F\tcfg") == Words{"ssh", "-F", "cfg"});
  CHECK(split("a 'b c' \"d e\" f\\ g") == Words{"a", "b c", "d e", "f g"});
  CHECK(split("a'b'\"c\"d") == Words{"abcd"});
  CHECK(split("'' \"\" x''") == Words{"", "", "x"});
  CHECK(split("'a\\b\"c'") == Words{"a\\b\"c"});
  CHECK(split(R"("\$ \` \" \\ \n")") == Words{"$ ` \" \\ \\n"});
  CHECK(split("a\\\nb \"c\\\nd\"") == Words{"ab", "cd"});
  CHECK(split("\"it's\" 'say \"x\"'") == Words{"it's", "say \"x\""});
}

TEST_CASE("nothing is expanded, and no operator has a meaning") {
  CHECK(split("$HOME ~ * a;b |c >d `e` #f &") == Words{"$HOME", "~", "*", "a;b", "|c", ">d", "`e`", "#f", "&"});
}

TEST_CASE("what is not closed is an error that shows it") {
  for (const char* text : {"a 'b", "a \"b", "a\\", "\"a\\"}) {
    CHECK_MESSAGE(!split_shell_words(text).ok(), text);
  }
  const auto open = RshTemplate::parse("ssh 'x");
  REQUIRE(!open.ok());
  CHECK(open.error().message() == "--rsh 'ssh 'x': nothing follows the last ' in it; expected its end");
  CHECK(!RshTemplate::parse("").ok());
  CHECK(!RshTemplate::parse(" ").ok());
  CHECK(!RshTemplate::parse("'' x").ok());
}

TEST_CASE("host, user and port are replaced inside words; without {host} the host comes last") {
  CHECK(words_of("ssh -F cfg", {"n1", "", 0}) == Words{"ssh", "-F", "cfg", "n1"});
  CHECK(words_of("kubectl exec -i {host} --", {"pod-1", "", 0}) == Words{"kubectl", "exec", "-i", "pod-1", "--"});
  CHECK(words_of("ssh -p {port} {user}@{host}", {"n1", "bob", 2222}) == Words{"ssh", "-p", "2222", "bob@n1"});
  CHECK(words_of("ssh -p {port} {user}@{host}", {"n1", "", 0}) == Words{"ssh", "-p", "22", "me@n1"});
  CHECK(words_of("x {other} {host", {"n1", "", 0}) == Words{"x", "{other}", "{host", "n1"});
  CHECK(words_of("x {host}{host}", {"{user}", "", 0}) == Words{"x", "{user}{user}"});
}

TEST_CASE("a host that would be an option, and a user or port without a place, are refused") {
  CHECK(refusal("ssh", {"-oProxyCommand=x", "", 0}).find("is not a host or user name") != std::string::npos);
  CHECK(refusal("ssh", {"a b", "", 0}).find("is not a host or user name") != std::string::npos);
  CHECK(refusal("ssh", {"", "", 0}).find("host name is empty") != std::string::npos);
  CHECK(refusal("ssh", {"n1", "bob", 0}).find("n1: the host list says user 'bob'") != std::string::npos);
  CHECK(refusal("ssh", {"n1", "", 2222}).find("n1: the host list says port 2222") != std::string::npos);
}

TEST_CASE("words are shown so that a shell would read them") {
  CHECK(shown_words({"ssh", "-o", "A b", "it's", "", "{x}"}) == "ssh -o 'A b' 'it'\\''s' '' {x}");
  CHECK(split(shown_words({"a b", "c'd", ""})) == Words{"a b", "c'd", ""});
  CHECK(shown_words({std::string(1000, 'x')}).size() < 400);
}

}  // namespace

}  // namespace hvd::launch::rsh_template_test
