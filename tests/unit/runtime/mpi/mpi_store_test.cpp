// runtime/mpi: which thread may exchange over MPI, without an MPI.
#include "runtime/mpi/mpi_store.h"

#include <memory>
#include <string>
#include <thread>

#include <doctest/doctest.h>

namespace hvd::mpi_store_test {

TEST_CASE("a later thread that has the id of the one that joined is not taken for it") {
  std::unique_ptr<MpiStore> store;
  std::thread([&store] {
    store = std::make_unique<MpiStore>(nullptr, JobSecret{}, nullptr, std::vector<int>{});
  }).join();
  std::string refused;
  std::thread([&] {  // the C library gives it the first one's stack, and with it the id
    refused = store->exchange("set", "", Deadline::after(std::chrono::seconds(1))).error().message();
  })
      .join();
  CHECK(refused.find("a process set needs MPI_THREAD_SERIALIZED or more") != std::string::npos);
}

}  // namespace hvd::mpi_store_test
