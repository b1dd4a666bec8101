#include "runtime/base/dyn_lib.h"

#include <algorithm>

#include <doctest/doctest.h>

namespace hvd::dyn_lib_test {

TEST_CASE("a library's function can be taken and called, and it tells its file") {
  const auto library = DynLib::open("libm.so.6", DynLib::Scope::kOwn);
  REQUIRE(library.ok());
  double (*root)(double) = nullptr;
  REQUIRE(library.value().take("sqrt", root).ok());
  CHECK(root(9.0) == 3.0);
  CHECK(library.value().path().find("/libm.so.6") != std::string::npos);
  CHECK(library.value().take("no_such_function", root).error().message() == "libm.so.6 has no no_such_function");
}

TEST_CASE("what is not there, or not loaded, is told by name") {
  const auto absent = DynLib::open("libnowhere.so.1", DynLib::Scope::kOwn);
  REQUIRE_FALSE(absent.ok());
  CHECK(absent.error().code() == Code::kNotFound);
  CHECK(absent.error().message().find("libnowhere.so.1") != std::string::npos);
  CHECK_FALSE(DynLib::find_loaded("libnowhere.so.1", DynLib::Scope::kOwn).ok());
  CHECK(DynLib::find_loaded("libc.so.6", DynLib::Scope::kOwn).ok());
}

TEST_CASE("all that is loaded is told by names that find it, and what a library defines from what it is linked with") {
  const auto loaded = DynLib::open("libm.so.6", DynLib::Scope::kOwn);
  REQUIRE(loaded.ok());
  const std::vector<std::string> names = DynLib::loaded_names();
  const auto math = std::find_if(names.begin(), names.end(),
                                 [](const std::string& name) { return name.find("/libm.so") != std::string::npos; });
  REQUIRE(math != names.end());
  const auto library = DynLib::find_loaded(*math, DynLib::Scope::kOwn);
  REQUIRE(library.ok());
  CHECK(library.value().defines("sqrt"));
  CHECK(library.value().find("malloc") != nullptr);
  CHECK_FALSE(library.value().defines("malloc"));
  CHECK_FALSE(library.value().defines("no_such_function"));
}

TEST_CASE("a moved library belongs to its new owner") {
  auto opened = DynLib::open("libm.so.6", DynLib::Scope::kOwn);
  REQUIRE(opened.ok());
  DynLib first = std::move(opened).value();
  const DynLib second = std::move(first);
  CHECK(first.find("sqrt") == nullptr);
  CHECK(second.find("sqrt") != nullptr);
}

}  // namespace hvd::dyn_lib_test
