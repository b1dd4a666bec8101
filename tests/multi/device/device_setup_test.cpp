#include "runtime/execute_device/device_setup.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace hvd::device_setup_test {
namespace {

constexpr std::uint16_t kAll = 0xffff;

// A rank with NCCL 2.30 and a GPU of its own; `gpu` is what its UUID is made of.
DeviceFacts facts_of(std::uint8_t gpu) {
  DeviceFacts made;
  made.has_device = 1;
  made.has_kernels = 1;
  made.kinds = kAll;
  made.nccl = 23000;
  made.uuid.fill(gpu);
  return made;
}

DeviceFacts lacking(std::uint8_t DeviceFacts::* what, const std::string& why) {
  DeviceFacts made = facts_of(9);
  made.*what = 0;
  made.why = why;
  return made;
}

}  // namespace

TEST_CASE("ranks with a GPU each go by NCCL") {
  const DeviceFacts facts[] = {facts_of(1), facts_of(2), facts_of(3)};
  const DevicePlan plan = plan_devices(facts, {0, 1, 2});
  CHECK(plan.kinds == kAll);
  CHECK_FALSE(plan.shares_gpus);
  CHECK(plan.notice == "");
  CHECK(plan.uses(OpKind::kAllreduce));
}

// A rank that sees one GPU (CUDA_VISIBLE_DEVICES) calls it 0, whichever it is: only the UUID tells GPUs apart.
TEST_CASE("whether ranks share a GPU is told by its UUID, whatever number they know it by") {
  const DeviceFacts pinned[] = {facts_of(7), facts_of(3), facts_of(5), facts_of(1)};
  CHECK_FALSE(plan_devices(pinned, {0, 1, 2, 3}).shares_gpus);
  const DeviceFacts two_each[] = {facts_of(7), facts_of(3), facts_of(7), facts_of(3)};
  const DevicePlan plan = plan_devices(two_each, {0, 1, 2, 3});
  CHECK(plan.shares_gpus);
  CHECK(plan.kinds == kAll);
  CHECK(plan.notice == "");
}

TEST_CASE("an NCCL that cannot share a GPU sends all through the host, and the first two that do are named") {
  DeviceFacts facts[] = {facts_of(1), facts_of(2), facts_of(2), facts_of(1)};
  for (DeviceFacts& each : facts) {
    each.nccl = 22703;
  }
  const DevicePlan plan = plan_devices(facts, {0, 4, 6, 8});  // a process set's ranks are called by the job's numbers
  CHECK(plan.kinds == 0);
  CHECK(plan.notice == "rank 4 and rank 6 share a GPU, which NCCL can from 2.30 on, and this is 2.27.3");
  const DeviceFacts apart[] = {facts[0], facts[1]};
  CHECK(plan_devices(apart, {0, 4}).kinds == kAll);
}

TEST_CASE("one rank without device, kernels or NCCL sends all through the host, and is named with its reason") {
  DeviceFacts without_nccl = facts_of(9);
  without_nccl.nccl = 0;
  without_nccl.why = "no NCCL: none here";
  const std::pair<DeviceFacts, const char*> all[] = {
      {lacking(&DeviceFacts::has_device, "no CUDA driver"), "rank 3: no CUDA driver"},
      {lacking(&DeviceFacts::has_kernels, "no device code"), "rank 3: no device code"},
      {without_nccl, "rank 3: no NCCL: none here"}};
  for (const auto& [worse, notice] : all) {
    const DeviceFacts facts[] = {facts_of(1), worse};
    const DevicePlan plan = plan_devices(facts, {1, 3});
    CHECK(plan.kinds == 0);
    CHECK(plan.notice == notice);
  }
}

TEST_CASE("two versions of NCCL do not meet") {
  DeviceFacts facts[] = {facts_of(1), facts_of(2)};
  facts[1].nccl = 22809;
  const DevicePlan plan = plan_devices(facts, {0, 1});
  CHECK(plan.kinds == 0);
  CHECK(plan.notice == "rank 0 has NCCL 2.30.0, but rank 1 has NCCL 2.28.9");
}

TEST_CASE("only what all ranks want done by NCCL is, and where they want nothing of it nothing is told") {
  const auto bit = [](OpKind kind) { return static_cast<std::uint16_t>(1U << static_cast<unsigned>(kind)); };
  DeviceFacts facts[] = {facts_of(1), facts_of(2)};
  facts[0].kinds = static_cast<std::uint16_t>(bit(OpKind::kAllreduce) | bit(OpKind::kBroadcast));
  facts[1].kinds = static_cast<std::uint16_t>(bit(OpKind::kAllreduce) | bit(OpKind::kAllgather));
  const DevicePlan plan = plan_devices(facts, {0, 1});
  CHECK(plan.uses(OpKind::kAllreduce));
  CHECK_FALSE(plan.uses(OpKind::kBroadcast));
  CHECK_FALSE(plan.uses(OpKind::kAllgather));
  facts[1] = lacking(&DeviceFacts::has_device, "no CUDA driver");
  facts[1].kinds = bit(OpKind::kAlltoall);
  const DevicePlan none = plan_devices(facts, {0, 1});
  CHECK(none.kinds == 0);
  CHECK(none.notice == "");
}

TEST_CASE("a rank's facts_of says what it lacks, the device before NCCL, and no more than there is room for") {
  DeviceOptions options;
  options.uses_nccl.fill(false);
  options.uses_nccl[static_cast<std::size_t>(OpKind::kBroadcast)] = true;
  const Error no_device(Code::kNotFound, "no device" + std::string(1000, '!'));
  const DeviceFacts made = make_facts(options, no_device, Error(Code::kNotFound, "no NCCL"));
  CHECK(made.kinds == 1U << static_cast<unsigned>(OpKind::kBroadcast));
  CHECK(made.has_device == 0);
  CHECK(made.has_kernels == 0);
  CHECK(made.nccl == 0);
  CHECK(made.why == "no device" + std::string(1000, '!'));
}

TEST_CASE("what a rank has comes back from its message; a long reason loses its end, and all messages have one size") {
  DeviceFacts sent = facts_of(7);
  sent.kinds = 0x1234;
  sent.why = "no device" + std::string(1000, '!');
  const std::string message = sent.encode();
  REQUIRE(message.size() == DeviceFacts::kBytes);
  CHECK(DeviceFacts().encode().size() == DeviceFacts::kBytes);
  const auto came = DeviceFacts::decode(message);
  REQUIRE(came.ok());
  CHECK(came.value().has_device == 1);
  CHECK(came.value().has_kernels == 1);
  CHECK(came.value().kinds == 0x1234);
  CHECK(came.value().nccl == 23000);
  CHECK(came.value().uuid == sent.uuid);
  CHECK(came.value().why == ("no device" + std::string(1000, '!')).substr(0, 228));
}

TEST_CASE("a message that is cut off, or whose text is longer than it, is refused") {
  const std::string message = facts_of(7).encode();
  CHECK_FALSE(DeviceFacts::decode(message.substr(0, message.size() - 1)).ok());
  CHECK_FALSE(DeviceFacts::decode("").ok());
  std::string endless = message;
  endless[24] = '\xff';
  CHECK_FALSE(DeviceFacts::decode(endless).ok());
  CHECK(DeviceFacts::decode(endless).error().code() == Code::kProtocol);
}

}  // namespace hvd::device_setup_test
