#include "launcher/survey/script_check.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <doctest/doctest.h>
#include <stdlib.h>

#include "launcher/survey/python_survey.h"

namespace hvd::launch::script_check_test {

TEST_CASE("the script of a Python command line is found, and nothing is taken for one") {
  CHECK(python_script_of({"python", "train.py", "-c"}) == "train.py");
  CHECK(python_script_of({"/v/bin/python3.11", "-u", "-X", "dev", "t.py"}) == "t.py");
  CHECK(python_script_of({"python", "-W", "ignore", "t.py"}) == "t.py");
  CHECK(python_script_of({"python", "-m", "pkg"}).empty());
  CHECK(python_script_of({"python", "-um", "pkg"}).empty());
  CHECK(python_script_of({"python", "-c", "pass"}).empty());
  CHECK(python_script_of({"python", "-"}).empty());
  CHECK(python_script_of({"python"}).empty());
  CHECK(python_script_of({"bash", "x.sh"}).empty());
}

TEST_CASE("only a program that is called as Python is, is taken for it, and is run to be asked") {
  for (const char* name : {"python", "/usr/bin/python3", "python3.11", "python3.13t", "python3.13td", "python3.11d",
                           "python3-dbg", "python3.11-dbg", "pypy", "pypy3", "/opt/pypy3.10"}) {
    CAPTURE(name);
    CHECK(is_python(name));
    CHECK(python_script_of({name, "resnet50"}) == "resnet50");
  }
  for (const char* name : {"./python_run.sh", "./python_train.sh", "python3.sh", "pythonic", "python-argcomplete",
                           "python3-config", "pypy_bench", "/opt/python/run", "ipython", "py", ""}) {
    CAPTURE(name);
    CHECK_FALSE(is_python(name));
    CHECK(python_script_of({name, "resnet50"}).empty());
  }
}

TEST_CASE("of a command line the first place that is missing is told, and what is there is not") {
  std::string folder = (std::filesystem::temp_directory_path() / "hvdrun-script-XXXXXX").string();
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  std::ofstream(folder + "/train.py") << "pass";
  const std::vector<std::string> argv = {"python", "train.py"};
  CHECK(!find_missing_place(argv, folder));
  CHECK(!find_missing_place({"python", folder + "/train.py"}, ""));
  const auto script = find_missing_place({"python", "other.py"}, folder);
  REQUIRE(script);
  CHECK(script->path == folder + "/other.py");
  CHECK(script->why.code() == hvd::Code::kNotFound);
  const auto directory = find_missing_place(argv, folder + "/none");
  REQUIRE(directory);
  CHECK(directory->path == folder + "/none");
  // Without a directory nothing is said of what would lie in it.
  CHECK(!find_missing_script("other.py", ""));
  CHECK(find_missing_script("/no/such/script.py", ""));
  std::filesystem::remove_all(folder);
}

}  // namespace hvd::launch::script_check_test
