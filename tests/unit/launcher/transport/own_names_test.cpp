// launcher/transport/own_names: this machine's names in its files.
#include "launcher/transport/own_names.h"

#include <doctest/doctest.h>

namespace hvd::launch::own_names_test {

TEST_CASE("names of own addresses and the full name in a searched domain are this machine's") {
  const auto is_own = [](const std::string& address) { return address == "127.0.1.1" || address == "10.0.0.5"; };
  const OwnNames names(
      "127.0.1.1 gpu1.lab.example gpu1  # as Debian's installer writes it\n"
      "10.0.0.5\tMaster.lab.example\tmaster\n"
      "10.0.0.6 node2 # 10.0.0.5 not-this\n"
      "#10.0.0.5 nor-this\n"
      "10.0.0.5\n"
      "0.0.0.0 blocked.example",
      "nameserver 10.0.0.1\nsearch cluster.example lab.example.\ndomain site.example\n;search other.example\nsearch",
      "gpu1.else.example", is_own);
  for (const char* own : {"gpu1.lab.example", "GPU1", "master", "master.lab.example", "gpu1.cluster.example",
                          "gpu1.cluster.example.", "gpu1.site.example", "gpu1."}) {
    CAPTURE(own);
    CHECK(names.has(own));
  }
  for (const char* other : {"node2", "not-this", "nor-this", "blocked.example", "gpu2.lab.example", "gpu1.else.example",
                            "gpu1.other.example", "10.0.0.5", ".", ""}) {
    CAPTURE(other);
    CHECK_FALSE(names.has(other));
  }
}

TEST_CASE("without files and without a host name there is no name") {
  const auto is_own = [](const std::string&) { return true; };
  const OwnNames none("", "search lab.example\n", "", is_own);
  for (const char* name : {"", ".lab.example", "lab.example"}) {
    CHECK_FALSE(none.has(name));
  }
}

}  // namespace hvd::launch::own_names_test
