// launcher/job: host lists, host files and the sizes of a rank's files, from text.
#include "launcher/job/host_list.h"

#include <random>

#include <doctest/doctest.h>

#include "launcher/job/hostfile.h"
#include "launcher/job/output_rotation.h"

namespace hvd::launch::host_list_test {
namespace {

HostList hosts_of(const char* text) {
  auto hosts = parse_host_list(text);
  REQUIRE_MESSAGE(hosts.ok(), (hosts.ok() ? "" : hosts.error().message()));
  return hosts.value();
}

std::string error_of(const char* text) {
  const auto hosts = parse_host_list(text);
  REQUIRE(!hosts.ok());
  CHECK(hosts.error().code() == hvd::Code::kInvalid);
  return hosts.error().message();
}

}  // namespace

TEST_CASE("a host list names users, slots and IPv6 addresses") {
  const HostList hosts = hosts_of("a:4,bob@b-1.x:2,[fe80::1%eth0]:8,c");
  REQUIRE(hosts.size() == 4);
  CHECK(hosts[0] == HostSpec{"a", "", 0, 4});
  CHECK(hosts[1] == HostSpec{"b-1.x", "bob", 0, 2});
  CHECK(hosts[2] == HostSpec{"fe80::1%eth0", "", 0, 8});
  CHECK(hosts[3] == HostSpec{"c", "", 0, 1});
  CHECK(hosts_of(" a:4, bob@b-1.x:2 ,\t[fe80::1%eth0]:8,\nc\n") == hosts);  // as from a list that a program has joined
}

TEST_CASE("of two numbers after a host the first is the SSH port") {
  const HostList hosts = hosts_of("bob@a:2222:4,[::1]:22:2");
  CHECK(hosts[0] == HostSpec{"a", "bob", 2222, 4});
  CHECK(hosts[1] == HostSpec{"::1", "", 22, 2});
}

TEST_CASE("a host may name the GPUs that are used there") {
  const HostList hosts = hosts_of("a:2@0,3,b:2,bob@c:22:1@7,n[1-2]:2@1,0,d@4");
  REQUIRE(hosts.size() == 6);
  CHECK(hosts[0] == HostSpec{"a", "", 0, 2, {0, 3}});
  CHECK(hosts[1] == HostSpec{"b", "", 0, 2, {}});
  CHECK(hosts[2] == HostSpec{"c", "bob", 22, 1, {7}});
  CHECK(hosts[4] == HostSpec{"n2", "", 0, 2, {1, 0}});
  CHECK(hosts[5] == HostSpec{"d", "", 0, 1, {4}});
  CHECK(hosts_of("a:2@0, 3, b:2") == hosts_of("a:2@0,3,b:2"));
  CHECK(hosts_of("a:1@0,a:2@1,0")[0] == HostSpec{"a", "", 0, 3, {0, 1}});
  CHECK(error_of("a:2@1,1").find("GPU 1 is named twice") != std::string::npos);
  CHECK(error_of("a:2@1,,2").find("expected a host name") != std::string::npos);
  CHECK(error_of("a:2@99999").find("expected the number of a GPU") != std::string::npos);
  CHECK(error_of("a:2@").find("expected the numbers of GPUs after '@', found ''") != std::string::npos);
  CHECK(error_of("a:2@x").find("expected the numbers of GPUs after '@', found 'x'") != std::string::npos);
}

TEST_CASE("Slurm's ranges are hosts in order, with the width of their first number") {
  const HostList hosts = hosts_of("u@n[08-10,3]:2,r[1-2]c[7]x");
  REQUIRE(hosts.size() == 6);
  CHECK(hosts[0] == HostSpec{"n08", "u", 0, 2});
  CHECK(hosts[2].name == "n10");
  CHECK(hosts[3].name == "n3");
  CHECK(hosts[5] == HostSpec{"r2c7x", "", 0, 1});
  CHECK(error_of("n[1-x]").find("expected a number") != std::string::npos);
  CHECK(error_of("n[4-1]").find("does not go down") != std::string::npos);
  CHECK(error_of("n[1-2").find("without ']'") != std::string::npos);
  CHECK(error_of("n1]").find("without '['") != std::string::npos);
  CHECK(error_of("n[1-999999999]").find("more than 100000 hosts") != std::string::npos);
  CHECK(error_of("n[1-1000]m[1-1000]").find("more than 100000 hosts") != std::string::npos);
}

TEST_CASE("a host listed twice is one node with summed slots") {
  const HostList hosts = hosts_of("a:2,b:1,a:3");
  REQUIRE(hosts.size() == 2);
  CHECK(hosts[0].slots == 5);
}

TEST_CASE("a bad host list is refused with its column") {
  CHECK(error_of("a:x").find("column 1: expected a number of slots") != std::string::npos);
  CHECK(error_of("a:70000:1").find("expected an SSH port") != std::string::npos);
  CHECK(error_of("a:1:2:3").find("several ':'") != std::string::npos);
  CHECK(error_of("a:2,,b").find("column 5") != std::string::npos);
  CHECK(error_of("a:2,  b:x").find("column 7") != std::string::npos);
  CHECK(error_of("a:2,b:0").find("column 5") != std::string::npos);
  CHECK(error_of("").find("expected a host name") != std::string::npos);
  CHECK(error_of("::1").find("brackets") != std::string::npos);
  CHECK(error_of("[::1").find("without ']'") != std::string::npos);
  CHECK(error_of("[::1]4").find("expected ':slots'") != std::string::npos);
  CHECK(error_of("a:99999999999999").find("number of slots") != std::string::npos);
  CHECK(error_of("b, a slots=4")
            .find("column 4: 'a slots=4' is a line of a host file, whose slots stand here behind a "
                  "':', as in a:4;") != std::string::npos);
  CHECK(error_of("a:2222\tslots=4 max_slots=8").find("as in a:2222:4;") != std::string::npos);
  CHECK(error_of("a b=4").find("expected a host name, found 'a b=4'") != std::string::npos);
}

TEST_CASE("a name that a program would take for an option or a shell for a command is refused") {
  for (const char* text : {"-oProxyCommand=x:1", "a b:1", "$(x):1", "a;b", "@a", "-l@a", "a'b", "a\nb"}) {
    CAPTURE(text);
    CHECK(!parse_host_list(text).ok());
  }
}

TEST_CASE("any bytes are a host list or an error") {
  std::mt19937 random(7);
  const std::string alphabet = "a1:,@[]%.-_ \n\xff";
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (std::size_t n = random() % 12; n > 0; --n) {
      text += alphabet[random() % alphabet.size()];
    }
    const auto hosts = parse_host_list(text);
    CHECK((hosts.ok() ? !hosts.value().empty() : !hosts.error().message().empty()));
  }
}

TEST_CASE("a host file is read in both forms, with comments and blank lines") {
  const auto hosts =
      parse_hostfile("# nodes\n\n a slots=2 max_slots=4 # fast\nb:3\r\n\tc\nd:2222 slots=4\ne[1-2]\n", "f");
  REQUIRE(hosts.ok());
  REQUIRE(hosts.value().size() == 6);
  CHECK(hosts.value()[3] == HostSpec{"d", "", 2222, 4});
  CHECK(hosts.value()[5].name == "e2");
  CHECK(hosts.value()[0].slots == 2);
  CHECK(hosts.value()[1].slots == 3);
  CHECK(hosts.value()[2].slots == 1);
}

TEST_CASE("a bad host file is refused with file, line and column") {
  const auto message = [](const char* text) { return parse_hostfile(text, "f").error().message(); };
  CHECK(message("a\nb slots=x\n").rfind("f:2:3:", 0) == 0);
  CHECK(message("a speed=9").rfind("f:1:3: expected slots=N", 0) == 0);
  CHECK(message("# nothing\n").find("names no host") != std::string::npos);
  CHECK(message("a slots=").find("expected a number") != std::string::npos);
  CHECK(message("a:1:2 slots=2").find("given twice") != std::string::npos);
  CHECK(message("a:70000 slots=2").find("no SSH port") != std::string::npos);
  CHECK(!read_hostfile("/no/such/file").ok());
}

TEST_CASE("the size of a rank's files is read with its unit, and how many old ones are kept") {
  const auto read = [](const char* text) { return hvd::launch::parse_output_rotation(text); };
  CHECK(read("10M").value() == hvd::launch::OutputRotation{10U << 20U, 1});
  CHECK(read("1g:5").value() == hvd::launch::OutputRotation{1U << 30U, 5});
  CHECK(read("512").value().max_bytes == 512);
  CHECK(read("2T").value().max_bytes == std::uint64_t{2} << 40U);
  for (const char* wrong : {"", "M", "0", "-1M", "10X", "10MB", "1.5G", "10M:", "10M:0", "10M:1001", "10M:x", ":3",
                            "99999999T", "99999999999999999999999"}) {
    CHECK_MESSAGE(!read(wrong).ok(), wrong);
  }
}

}  // namespace hvd::launch::host_list_test
