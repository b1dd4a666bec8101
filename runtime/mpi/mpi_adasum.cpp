// MpiBackend's Adasum, among all ranks at once.
#include <cstring>

#include "runtime/algo/adasum_parties.h"
#include "runtime/mpi/mpi_backend.h"

namespace hvd {
namespace {

class MpiParties final : public AdasumParties {
 public:
  MpiParties(MpiCollectives& all, Interrupt& interrupt) : all_(all), interrupt_(interrupt) {}

  [[nodiscard]] std::size_t index() const override { return static_cast<std::size_t>(all_.self()); }
  Result<void> exchange(const std::uint8_t* packed, const ShareLayout& layout, std::uint8_t* received) override {
    const Range& own = layout.of_parties()[index()];
    if (own.size() != 0) {
      std::memcpy(received + index() * own.size(), packed + own.begin, own.size());
    }
    std::vector<MpiCollectives::Exchange> steps;
    for (int distance = 1; distance < all_.count(); ++distance) {
      const int to = ring_next(all_.self(), all_.count(), distance);
      const int from = ring_previous(all_.self(), all_.count(), distance);
      const Range& theirs = layout.of_parties()[static_cast<std::size_t>(to)];
      steps.push_back({to, packed + theirs.begin, theirs.size(), from,
                       received + static_cast<std::size_t>(from) * own.size(), own.size()});
    }
    return all_.exchange(steps, interrupt_);
  }
  Result<void> sum(std::span<double> values) override {
    return sum_in_order(
        index(), static_cast<std::size_t>(all_.count()), values,
        [this](double* data, std::span<const Range> blocks) { return all_.allgather(data, blocks, interrupt_); });
  }
  Result<void> gather(std::uint8_t* packed, const ShareLayout& layout) override {
    return all_.allgather(packed, layout.of_parties(), interrupt_);
  }

 private:
  MpiCollectives& all_;
  Interrupt& interrupt_;
};

}  // namespace

Result<void> MpiBackend::adasum(std::span<const MutableBytes> tensors, Dtype dtype, Interrupt& interrupt) {
  const ShareLayout layout(tensors, dtype, static_cast<std::size_t>(all_.count()));
  HVD_TRY_ASSIGN(std::uint8_t* const packed, staging_.reserve(adasum_room(layout)));
  layout.pack(tensors, packed);
  MpiParties ranks(all_, interrupt);
  HVD_TRY(combine_adasum(ranks, layout, dtype, packed));
  layout.unpack(packed, tensors);
  return {};
}

}  // namespace hvd
