// Reductions of what lies in pieces: as of the whole, however each rank has cut it.
#include <random>

#include <doctest/doctest.h>

#include "tests/multi/thread_job.h"

namespace hvd::pieces_test {
using namespace hvd::test;  // NOLINT(google-build-using-namespace)

namespace {

double value_of(int rank, std::size_t i) {
  return static_cast<double>((i * 13 + static_cast<std::size_t>(rank) * 5) % 17);
}

// `total` elements in pieces of up to 700, some of them empty; now and then in one.
std::vector<std::size_t> cut(std::size_t total, std::mt19937& random) {
  std::vector<std::size_t> counts;
  if (random() % 4 == 0) {
    return {total};
  }
  for (std::size_t left = total; left > 0;) {
    const std::size_t count = random() % 5 == 0 ? 0 : std::min<std::size_t>(left, random() % 700);
    counts.push_back(count);
    left -= count;
  }
  return counts;
}

template <typename T>
Result<void> check_pieces(Rank& rank, Dtype dtype, std::size_t total, Scales scales, std::mt19937& own_random) {
  std::vector<std::vector<T>> inputs;
  std::vector<std::vector<T>> outputs;
  std::vector<Piece> pieces;
  std::size_t at = 0;
  for (const std::size_t count : cut(total, own_random)) {
    std::vector<T>& input = inputs.emplace_back();
    for (std::size_t i = 0; i < count; ++i) {
      input.push_back(static_cast<T>(value_of(rank.map.rank, at + i)));
    }
    at += count;
    outputs.emplace_back(count);
  }
  const std::vector<std::vector<T>> brought = inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool in_place = own_random() % 2 == 0;
    pieces.push_back(
        Piece{inputs[i].data(), in_place ? inputs[i].data() : outputs[i].data(), inputs[i].size() * sizeof(T)});
  }
  HVD_TRY(rank.backend.allreduce_pieces(pieces, dtype, ReduceOp::kSum, scales, rank.interrupt));
  at = 0;
  for (std::size_t piece = 0; piece < pieces.size(); ++piece) {
    const bool in_place = pieces[piece].input == pieces[piece].output;
    if (!in_place && inputs[piece] != brought[piece]) {
      return Error(Code::kInternal, "the input of piece " + std::to_string(piece) + " has changed");
    }
    for (const T value : in_place ? inputs[piece] : outputs[piece]) {
      double sum = 0;
      for (int other = 0; other < rank.map.size; ++other) {
        sum += value_of(other, at) * scales.before.factor;
      }
      if (static_cast<double>(value) != sum * scales.after.factor) {
        return Error(Code::kInternal, "element " + std::to_string(at) + " of " + std::to_string(total) + " is " +
                                          std::to_string(value) + ", not " + std::to_string(sum * scales.after.factor));
      }
      ++at;
    }
  }
  return {};
}

}  // namespace

TEST_CASE("pieces are reduced as one array, in place and not, however each rank has cut them") {
  for (const Nodes& nodes :
       {Nodes{2}, Nodes{3}, Nodes{4}, Nodes{7}, Nodes{1, 1}, Nodes{1, 1, 1, 1, 1}, Nodes{2, 2}, Nodes{1, 3, 2}}) {
    for (const bool is_small : {false, true}) {
      CAPTURE(text_of(nodes));
      CAPTURE(is_small);
      ThreadJob job(nodes);
      JobOptions options;
      if (is_small) {  // all is cut often
        options.shm_slot_bytes = 4096;
        options.tuning.pairs_bytes = 0;
        options.tuning.wire_bytes = 4096;
        options.tuning.segment_bytes = 16384;
      }
      const auto errors = job.run(options, [](Rank& rank) -> Result<void> {
        std::mt19937 random(11);  // the same sizes on every rank
        std::mt19937 own_random(static_cast<unsigned>(rank.map.rank));
        for (int i = 0; i < 20; ++i) {
          const std::size_t total = random() % 20'000 + 1;
          HVD_TRY(check_pieces<float>(rank, Dtype::kFloat32, total, {}, own_random));
          HVD_TRY(check_pieces<float>(rank, Dtype::kFloat32, total, Scales{0.5, 4.0}, own_random));
          HVD_TRY(check_pieces<std::int8_t>(rank, Dtype::kInt8, total, {}, own_random));
          HVD_TRY(check_pieces<double>(rank, Dtype::kFloat64, total / 3 + 1, Scales{1.0, 0.25}, own_random));
        }
        return {};
      });
      for (const auto& error : errors) {
        CHECK_MESSAGE(!error, error->message());
      }
    }
  }
}

}  // namespace hvd::pieces_test
