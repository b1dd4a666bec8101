// A communicator of the fake NCCL, and what its streams run.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/nccl/nccl_abi.h"
#include "tests/support/fake_nccl/fake_links.h"

namespace hvd::fake {

enum class Kind { kAllReduce, kBroadcast, kReduce, kAllGather, kReduceScatter, kSend, kRecv };

// One call within a group.
struct Call {
  Kind kind = Kind::kAllReduce;
  const void* input = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  NcclType type = NcclType::kUint8;
  NcclOp op = NcclOp::kSum;
  int peer = 0;  // or root
  NcclStream stream = nullptr;
};

// The end of this process, by SIGKILL.
void die();
const char* name_of(Kind kind);
std::size_t size_of(NcclType type);

// What the device's work of a communicator needs, as long as that lasts.
struct Work {
  Work(int own_rank, int all) : rank(own_rank), size(all), links(own_rank, all) {}
  const int rank;
  const int size;
  Links links;
  std::atomic<int> error{0};  // ncclResult_t, of what went wrong on the way
  std::atomic<bool> is_aborted{false};

  void run(const std::vector<Call>& group);

 private:
  Links::End run_call(const Call& call, void (*half_sent)());
  Links::End reduce(const Call& call, std::size_t skip, std::size_t count, bool keeps, void (*half_sent)());
};

// Memory that is registered with a communicator.
struct Registration {
  const std::uint8_t* data = nullptr;
  std::size_t bytes = 0;
};

}  // namespace hvd::fake

// Thread: any, one at a time, but for abort and the asynchronous error.
struct ncclComm {
  ncclComm(std::string own_name, int rank, int size)
      : name(std::move(own_name)), work(std::make_shared<hvd::fake::Work>(rank, size)) {}

  // Runs on a thread of its own, until which the communicator is in progress. `body` gives a ncclResult_t.
  void start(std::function<int()> body);
  void join();

  const std::string name;
  const std::shared_ptr<hvd::fake::Work> work;
  std::atomic<int> state{0};  // ncclResult_t
  int splits = 0;
  std::list<hvd::fake::Registration> registrations;  // whose addresses are the handles

 private:
  std::mutex mutex_;
  std::thread worker_;
};
