// The arithmetic of the kernels, from the source that the device runs, on the host: no GPU, and no fake of one.
#include "runtime/device/move_body.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/device/kernels.h"
#include "tests/unit/runtime/device/resnet50.h"

namespace hvd::move_body_test {
namespace {

constexpr std::size_t kGuard = 64;  // bytes that nobody may write, on each side

// Pieces of these counts, each in memory of its own that begins `shift` bytes after a vector's place.
template <typename From, typename To>
class Case {
 public:
  using Source = typename From::Stored;
  using Target = typename To::Stored;

  Case(std::vector<std::size_t> counts, std::size_t shift_from, std::size_t shift_to, std::size_t grain, Scale scale)
      : counts_(std::move(counts)), grain_(grain), scale_(scale) {
    std::mt19937 random(7);
    for (const std::size_t count : counts_) {
      inputs_.emplace_back(count * sizeof(Source) + kVectorBytes + shift_from);
      for (std::uint8_t& byte : inputs_.back()) {
        byte = static_cast<std::uint8_t>(random());
      }
      outputs_.emplace_back(padded(count) * sizeof(Target) + 2 * kGuard + shift_to, kUntouched);
      Move move;
      move.from = even(inputs_.back().data()) + shift_from;
      move.to = even(outputs_.back().data() + kGuard / 2) + shift_to;
      move.count = count;
      move.padded = padded(count);
      if (count > 0) {
        move.first_chunk = chunks_;
        chunks_ += chunks_of(move.padded, Mover<From, To>::kUnit);
        moves_.push_back(move);
      }
    }
  }

  void run(std::uint64_t warps) {
    MoveList list;
    list.moves = moves_.data();
    list.count = static_cast<std::uint32_t>(moves_.size());
    list.chunks = chunks_;
    list.scale = scale_;
    for (std::uint64_t warp = 0; warp < warps; ++warp) {
      for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
        move_lane<Mover<From, To>>(list, warp, warps, lane);
      }
    }
  }

  // How many elements are not as element by element would give, or bytes around them are not as they were.
  [[nodiscard]] std::size_t wrong() const {
    std::size_t found = 0;
    std::size_t at = 0;
    for (std::size_t piece = 0; piece < counts_.size(); ++piece) {
      if (counts_[piece] == 0) {
        continue;
      }
      const Move& move = moves_[at++];
      for (std::size_t i = 0; i < move.padded; ++i) {
        Source source{};
        Target is{};
        Target wanted{};
        if (i < move.count) {
          std::memcpy(&source, move.from + i * sizeof(Source), sizeof(Source));
          using Value = typename From::Value;
          const Value value = From::load(source);
          const auto product = static_cast<Value>(value * static_cast<Value>(scale_.factor));
          wanted =
              To::store(scale_.is_one() ? value : static_cast<Value>(product / static_cast<Value>(scale_.divisor)));
        }
        std::memcpy(&is, move.to + i * sizeof(Target), sizeof(Target));
        found += std::memcmp(&is, &wanted, sizeof(Target)) != 0 ? 1U : 0U;
      }
      const auto& memory = outputs_[piece];
      const auto begin = static_cast<std::size_t>(move.to - memory.data());
      const std::size_t end = begin + move.padded * sizeof(Target);
      for (std::size_t i = 0; i < memory.size(); ++i) {
        found += (i < begin || i >= end) && memory[i] != kUntouched ? 1U : 0U;
      }
    }
    return found;
  }

 private:
  static constexpr std::uint8_t kUntouched = 0xA5;
  static std::uint8_t* even(std::uint8_t* data) {
    return data + (kVectorBytes - reinterpret_cast<std::uintptr_t>(data) % kVectorBytes) % kVectorBytes;
  }
  [[nodiscard]] std::size_t padded(std::size_t count) const {
    return grain_ == 0 ? count : (count * sizeof(Target) + grain_ - 1) / grain_ * grain_ / sizeof(Target);
  }

  std::vector<std::size_t> counts_;
  std::size_t grain_;
  Scale scale_;
  std::vector<std::vector<std::uint8_t>> inputs_;
  std::vector<std::vector<std::uint8_t>> outputs_;
  std::vector<Move> moves_;
  std::uint64_t chunks_ = 0;
};

// Around every size at which a lane, a warp or a chunk changes its way.
template <typename M>
std::vector<std::size_t> odd_sizes() {
  std::vector<std::size_t> sizes = {0, 1, 2, 3, 0, 5};
  for (const std::size_t unit :
       {std::size_t{1}, std::size_t{kWarpLanes}, std::size_t{kChunkUnits}, std::size_t{2 * kChunkUnits}}) {
    for (const int more : {-1, 0, 1, 3}) {
      sizes.push_back(static_cast<std::size_t>(static_cast<int>(unit * M::kUnit) + more));
    }
  }
  sizes.push_back(0);
  return sizes;
}

template <typename From, typename To>
void check_everywhere(const char* name) {
  using M = Mover<From, To>;
  for (const Scale scale : {Scale(1.0), Scale(0.25), Scale(-3.0), Scale(1e30), Scale(1.0, 3.0), Scale(0.7, 5.0)}) {
    if (std::is_integral_v<typename M::Value> && !scale.is_one()) {
      continue;  // those only copy
    }
    for (const std::size_t grain : {std::size_t{0}, kPackGrain}) {
      for (const std::size_t shift : {std::size_t{0}, std::size_t{1}, std::size_t{3}}) {
        Case<From, To> to_even(odd_sizes<M>(), shift * M::kFromBytes, 0, grain, scale);
        to_even.run(3);
        CHECK_MESSAGE(to_even.wrong() == 0, name, " scale ", scale.factor, " / ", scale.divisor, " from ", shift);
        Case<From, To> from_even(odd_sizes<M>(), 0, shift * M::kToBytes, grain, scale);
        from_even.run(17);
        CHECK_MESSAGE(from_even.wrong() == 0, name, " scale ", scale.factor, " / ", scale.divisor, " to ", shift);
      }
    }
  }
}

}  // namespace

TEST_CASE("every kernel moves, casts and scales pieces of every size, wherever they lie") {
#define HVD_CHECK_MOVE(name, From, To) check_everywhere<From, To>(#name);
  HVD_MOVE_KERNELS(HVD_CHECK_MOVE)
}

TEST_CASE("the number of warps changes nothing, from one to more than there are chunks") {
  for (const std::uint64_t warps : {1U, 2U, 7U, 64U, 1000U, 100000U}) {
    Case<AsItself<float>, AsFloat16> some({1000, 1, 5000, 3, 128 * 8, 77777}, 4, 0, kPackGrain, 0.5);
    some.run(warps);
    CHECK(some.wrong() == 0);
  }
}

TEST_CASE("ResNet-50's 161 tensors move whole, as float32 and cast") {
  REQUIRE(resnet50_sizes().size() == 161);
  std::vector<std::size_t> sizes = resnet50_sizes();
  REQUIRE(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}) == 25557032);
  for (std::size_t& size : sizes) {
    size = (size + 15) / 16;  // the shape of the list, at a sixteenth
  }
  Case<AsItself<std::uint32_t>, AsItself<std::uint32_t>> copy(sizes, 0, 0, kPackGrain, 1.0);
  copy.run(8 * 8 * 4);
  CHECK(copy.wrong() == 0);
  Case<AsItself<float>, AsBfloat16> cast(sizes, 0, 0, kPackGrain, 1.0 / 3.0);
  cast.run(8 * 8 * 4);
  CHECK(cast.wrong() == 0);
}

TEST_CASE("a chunk finds its piece among thousands") {
  std::vector<Move> moves(5000);
  std::uint64_t chunks = 0;
  std::mt19937 random(3);
  std::vector<std::uint32_t> owner;
  for (std::uint32_t i = 0; i < moves.size(); ++i) {
    moves[i].first_chunk = chunks;
    const unsigned own = 1 + random() % 4;
    chunks += own;
    owner.insert(owner.end(), own, i);
  }
  for (std::uint64_t chunk = 0; chunk < chunks; ++chunk) {
    REQUIRE(piece_of(moves.data(), static_cast<std::uint32_t>(moves.size()), chunk) == owner[chunk]);
  }
}

TEST_CASE("a float32 is divided as IEEE 754 says, by multiplications") {
  std::mt19937 random(11);
  std::size_t taken = 0;
  std::size_t wrong = 0;
  const auto compare = [&](float number, float divisor) {
    const FloatDivision division(divisor);
    if (division.takes(number)) {
      ++taken;
      wrong +=
          std::bit_cast<std::uint32_t>(division.quotient(number)) != std::bit_cast<std::uint32_t>(number / divisor);
    }
  };
  for (const float divisor : {2.0F, 3.0F, 7.0F, 8.0F, 49.0F, 1000.0F, 65535.0F, 16777215.0F}) {
    for (int i = 0; i < 100'000; ++i) {
      compare(std::bit_cast<float>(static_cast<std::uint32_t>(random())), divisor);
    }
    compare(0.0F, divisor);
    compare(-0.0F, divisor);
    compare(std::numeric_limits<float>::max(), divisor);
  }
  for (int i = 0; i < 100'000; ++i) {
    compare(std::bit_cast<float>(static_cast<std::uint32_t>(random())), static_cast<float>(2 + random() % 16777214));
  }
  CHECK(wrong == 0);
  CHECK(taken > 700'000);
  const FloatDivision thirds(3.0F);
  for (const float odd : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::denorm_min(), 1e-30F}) {
    CHECK_FALSE(thirds.takes(odd));
  }
  CHECK_FALSE(FloatDivision(1.5F).takes(1.0F));
  CHECK_FALSE(FloatDivision(1e9F).takes(1.0F));
}

TEST_CASE("what an integer cannot hold becomes its nearest value, and no number becomes 0") {
  CHECK(AsInteger<std::uint8_t>::store(300.0) == 255);
  CHECK(AsInteger<std::uint8_t>::store(-1.0) == 0);
  CHECK(AsInteger<std::int8_t>::store(-129.0) == -128);
  CHECK(AsInteger<std::int32_t>::store(-1.5) == -1);
  CHECK(AsInteger<std::int64_t>::store(1e300) == INT64_MAX);
  CHECK(AsInteger<std::int64_t>::store(-1e300) == INT64_MIN);
  CHECK(AsInteger<std::int16_t>::store(std::nan("")) == 0);
  CHECK(AsBool::store(AsBool::load(7) * 0.5) == 0);
  CHECK(AsBool::store(AsBool::load(7) * 2.0) == 1);
}

}  // namespace hvd::move_body_test
