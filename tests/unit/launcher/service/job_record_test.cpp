#include "launcher/service/job_record.h"

#include <string>

#include <doctest/doctest.h>

#include "launcher/report/listing.h"

namespace hvd::launch::job_record_test {

TEST_CASE("a part of a record is found by its path") {
  const std::string json = R"({"a": {"b": [{"c": 1}, "text"]}, "none": null, "flag": true})";
  CHECK(json_field(json, "a.b.0.c") == "1");
  CHECK(json_field(json, "a.b.1") == "text");
  CHECK(json_field(json, "none") == "");
  CHECK(json_field(json, "flag") == "true");
  for (const char* path : {"", "x", "a.b.2", "a.b.-1", "a.b.c", "a..b", "a.b.0.c.d", "."}) {
    CHECK(!json_field(json, path).has_value());
  }
  CHECK(!json_field("no json", "a").has_value());
}

TEST_CASE("times are in UTC as ISO 8601 has them") {
  CHECK(utc_text(0).empty());
  CHECK(utc_text(1'531'953'688'000) == "2018-07-18T22:41:28+00:00");
}

TEST_CASE("a listing is aligned as az does it") {
  CHECK(listing({{"Name"}, {"Size", true}}, {{"stdout.txt", "2316480"}, {"a", ""}}) ==
        "Name           Size\n----------  -------\nstdout.txt  2316480\na\n");
  CHECK(listing({{"State"}, {"Idle", true}}, {{"steady", "4"}}) ==
        "State      Idle\n-------  ------\nsteady        4\n");
  CHECK(listing({{"Name"}}, {{"a\x1b[31m\nb"}}).find('\x1b') == std::string::npos);
}

}  // namespace hvd::launch::job_record_test
