// What ssh says of connections that were dropped before the login, and when to try again.
#include "launcher/transport/dropped.h"

#include <doctest/doctest.h>

namespace hvd::launch::dropped_test {
namespace {

TEST_CASE("only words that say a drop, and nothing else, are one") {
  const std::string first = "kex_exchange_identification: Connection closed by remote host\r\n";
  const std::string plain = "Connection closed by UNKNOWN port 65535\r\n";
  CHECK(dropped_by(first) == Dropped::kBeforeLogin);
  CHECK(dropped_by(first + plain + first + plain) == Dropped::kBeforeLogin);
  CHECK(dropped_by(
            "kex_exchange_identification: read: Connection reset by peer\r\nConnection reset by 10.0.0.1 port 22") ==
        Dropped::kBeforeLogin);
  CHECK(dropped_by("kex_exchange_identification: write: Broken pipe\nbanner exchange: Connection to 10.0.0.1 port 22: "
                   "Broken pipe\n") == Dropped::kBeforeLogin);
  CHECK(dropped_by("ssh_exchange_identification: Connection closed by remote host\r\n") == Dropped::kBeforeLogin);
  CHECK(dropped_by("Warning: Permanently added 'bastion' (ED25519) to the list of known hosts.\r\n" + first + plain) ==
        Dropped::kBeforeLogin);
  CHECK(dropped_by(plain) == Dropped::kPerhaps);
  CHECK(dropped_by("Connection reset by 10.0.0.1 port 22\r\n") == Dropped::kPerhaps);
}

TEST_CASE("a reason beside the words of a drop is the reason") {
  const std::string drop =
      "kex_exchange_identification: Connection closed by remote host\r\nConnection closed by UNKNOWN port 65535\r\n";
  CHECK(dropped_by("") == Dropped::kNo);
  for (const char* reason :
       {"ssh: connect to host bastion port 22: Connection refused", "ada@bastion: Permission denied (publickey).",
        "Host key verification failed.", "ssh: Could not resolve hostname bastion: Name or service not known",
        "channel 0: open failed: connect failed: Connection refused", "stdio forwarding failed", "sh: 1: nc: not found",
        "kex_exchange_identification: banner line contains invalid characters",
        "Access denied by pam_slurm_adopt: you have no active jobs on this node",
        "client_loop: send disconnect: Broken pipe", "Connection to node1 closed by remote host."}) {
    CAPTURE(reason);
    CHECK(dropped_by(reason) == Dropped::kNo);
    CHECK(dropped_by(std::string(reason) + "\r\n" + drop) == Dropped::kNo);
    CHECK(dropped_by(drop + reason + "\r\n") == Dropped::kNo);
  }
}

TEST_CASE("each wait is about twice the one before, and none long") {
  std::minstd_rand jitter;  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same numbers each time
  for (int drops = 0; drops < 2000; ++drops) {
    const double about = drops < 4 ? 150.0 * (1 << drops) : 2000;
    const double ms = std::chrono::duration<double, std::milli>(drop_backoff(drops, jitter)).count();
    CHECK(ms >= about * 0.5 - 1);
    CHECK(ms <= about * 1.5);
  }
}

}  // namespace

}  // namespace hvd::launch::dropped_test
