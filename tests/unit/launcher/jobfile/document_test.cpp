// launcher/jobfile: documents in JSON and YAML.
#include "launcher/jobfile/document.h"

#include <string>

#include <doctest/doctest.h>

namespace hvd::launch::document_test {
namespace {

using Kind = DocValue::Kind;

std::string error_of(const hvd::Result<DocValue>& document) {
  return document.ok() ? "" : document.error().message();
}

}  // namespace

TEST_CASE("every value of a JSON document knows where it stands") {
  const auto document =
      parse_json_document("\xef\xbb\xbf{\r\n  \"a\": [1, -2,\n 3.5e1, true],\n\t\"b\": {\"c\": null}}", "f");
  REQUIRE(document.ok());
  const DocValue& root = document.value();
  CHECK(root.at == Position{1, 4});  // behind the byte order mark
  CHECK(root.key_at[0] == Position{2, 3});
  const DocValue& list = root.items[0];
  CHECK(list.at == Position{2, 8});
  CHECK(list.items[1].at == Position{2, 12});
  CHECK(list.items[1].text == "-2");
  CHECK(list.items[2].at == Position{3, 2});
  CHECK(list.items[2].kind == Kind::kReal);
  CHECK(list.items[3].at == Position{3, 9});
  CHECK(root.items[1].key_at[0] == Position{4, 8});
  CHECK(root.items[1].find("c") == nullptr);  // null is as not there
}

TEST_CASE("JSON is read to the letter, and refused with line and column") {
  const auto refused = [](const std::string& text) { return error_of(parse_json_document(text, "f")); };
  CHECK(refused("{\"a\": 1,\n}") == "f:2:1: a comma before '}'; JSON has none after the last entry");
  CHECK(refused("[1,\n 2 , ]") == "f:2:6: a comma before ']'; JSON has none after the last entry");
  CHECK(refused("{\"a\": 1, \"a\": 2}") == "f:1:10: the key 'a' is given twice (first in line 1)");
  CHECK(refused("{\"a\": 1 // no\n}") == "f:1:9: JSON has no comments");
  CHECK(refused("{\"a\": 1") == "f:1:8: the file ends in the middle of a value; is a bracket or quote missing?");
  CHECK(refused("{\"a\": \"\\ud83d\"}").starts_with("f:1:14: not JSON: "));
  CHECK(refused("{\"a\": 01}").starts_with("f:1:8: not JSON: "));
  CHECK(refused("{'a': 1}").starts_with("f:1:2: not JSON: "));
  CHECK(refused("").starts_with("f:1:1: "));
  CHECK(refused("{} x").starts_with("f:1:4: not JSON: "));
  CHECK(refused(std::string(100, '[')).find("nested more than 64 deep") != std::string::npos);
  CHECK(error_of(parse_document(std::string("\xff\xfe{\0}\0", 6), "f.json")) ==
        "f.json:1:1: the text is UTF-16, as PowerShell's > writes it; save it as UTF-8");
  CHECK(error_of(parse_document(std::string(kMostJobFileBytes + 1, ' '), "f.json"))
            .starts_with("f.json: more than 1048576 bytes"));
  CHECK(parse_json_document("\"\\ud83d\\ude00\"", "f").value().text == "\xf0\x9f\x98\x80");
}

TEST_CASE("YAML scalars are what the core schema makes of them, and quotes make text") {
  const auto document = parse_yaml_document(
      "a: 1\nb: '1'\nc: yes\nd: true\ne: 1.5\nf: ~\ng: 0777\nh: 1:30:00\ni: |\n  two\n  lines\nj: [x, 0x10]\nk: -3\n",
      "f");
  REQUIRE(document.ok());
  const DocValue& root = document.value();
  const auto kind = [&root](std::size_t i) { return root.items[i].kind; };
  CHECK(kind(0) == Kind::kInteger);
  CHECK(kind(1) == Kind::kText);
  CHECK(kind(2) == Kind::kText);
  CHECK(kind(3) == Kind::kBool);
  CHECK(kind(4) == Kind::kReal);
  CHECK(kind(5) == Kind::kNull);
  CHECK(kind(6) == Kind::kInteger);
  CHECK(root.items[6].text == "0777");
  CHECK(kind(7) == Kind::kText);
  CHECK(root.items[8].text == "two\nlines\n");
  CHECK(root.items[9].items[1].kind == Kind::kText);
  CHECK(kind(10) == Kind::kInteger);
  CHECK(root.items[9].at == Position{12, 4});
}

TEST_CASE("YAML is refused with line and column, and cannot be made to grow") {
  const auto refused = [](const std::string& text) { return error_of(parse_yaml_document(text, "f")); };
  CHECK(refused("a: 1\na: 2\n") == "f:2:1: the key 'a' is given twice");
  CHECK(refused("a: [1\n").starts_with("f:"));
  CHECK(refused("a: 1\n---\nb: 2\n").find("a second document") != std::string::npos);
  CHECK(refused("") == "f:1:1: the file is empty; expected keys with their values");
  CHECK(refused("? [a]\n: 1\n").find("expected a name as key") != std::string::npos);
  CHECK(refused("a:\n\tb: 1\n") == "f:2:3: the line begins with a tab; YAML is indented with spaces");
  CHECK(refused("a: echo b: c\n").find("put a text with ': ' in quotes") != std::string::npos);
  CHECK(refused("a: 1\n b: 2\n").find("indent the keys of one map alike") != std::string::npos);
  CHECK(refused("a: [b\n") == "f:2:1: not YAML: a '[' or '{', or a quote, has no end");
  CHECK(refused("a: !include b.yaml\n") == "f:1:4: the tag '!include' means nothing here; write the value itself");
  CHECK(refused("a: !!python/name:os.system [b]\n").find("the tag '!!python/name:os.system'") != std::string::npos);
  CHECK(refused("a: !!str 5\nb: !!map {c: !!seq [d]}\ne: ! f\n").empty());
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string last = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 10; ++j) {
      bomb += last + (j < 9 ? ", " : "]\n");
    }
  }
  CHECK(refused(bomb).find("more than 20000 values") != std::string::npos);
}

}  // namespace hvd::launch::document_test
