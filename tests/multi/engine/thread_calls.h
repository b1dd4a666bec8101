// wrong_of_threads() runs allreduces of several threads of each rank, which meet in any order, some by the quick path
// and some by the engine. A case for a job of any placement.
#pragma once

#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/multi/engine/engine_job.h"

namespace hvd::test {

// Returns how many operations failed or had a wrong result, of three threads that do so many rounds each. `nodes` have
// three ranks together.
inline int wrong_of_threads(const Nodes& nodes, int rounds) {
  constexpr int kThreads = 3;
  EngineJob job(nodes);
  std::atomic<int> wrong = 0;
  on_all(job.size(), [&](int rank) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(static_cast<unsigned>(rank * 10 + t));
        for (int round = 0; round < rounds; ++round) {
          FloatOp op("t" + std::to_string(t), 8, static_cast<float>(rank + round));
          const bool is_quick = random() % 4 != 0;
          const hvd_status status = is_quick ? hvd_execute(job.at(rank), &op.op, nullptr) : op.run(job.at(rank)).status;
          wrong += status != HVD_OK || op.output[7] != static_cast<float>(3 + 3 * round) ? 1 : 0;
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  });
  return wrong;
}

}  // namespace hvd::test
