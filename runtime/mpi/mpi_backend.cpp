#include "runtime/mpi/mpi_backend.h"

#include <cstring>

#include "runtime/algo/adasum_parties.h"
#include "runtime/base/check.h"

namespace hvd {
namespace {

// Lower tags belong to other users of the communicator (mpi_store.cpp). MPI guarantees tags up to 32767.
constexpr int kFirstTag = 16;
constexpr int kTags = 32000;

std::vector<Range> ranges_of(std::span<const std::size_t> sizes) {
  return side_by_side({0, sizes.size()}, [&sizes](std::size_t rank) { return sizes[rank]; });
}

void copy(void* to, const void* from, std::size_t bytes) {
  if (bytes != 0 && to != from) {
    std::memcpy(to, from, bytes);
  }
}

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

MpiBackend::MpiBackend(std::shared_ptr<MpiComm> comm, std::vector<int> ranks, int tag)
    : comm_(std::move(comm)), all_(*comm_, std::move(ranks), tag) {}

Result<void> MpiBackend::allreduce(void* data, std::size_t count, Dtype dtype, ReduceOp op, Interrupt& interrupt) {
  HVD_CHECK(op != ReduceOp::kAverage);
  return all_.allreduce(data, count, dtype, op, interrupt);
}

Result<void> MpiBackend::broadcast(void* data, std::size_t size_bytes, int root, Interrupt& interrupt) {
  HVD_CHECK(root >= 0 && root < all_.count());
  return all_.broadcast(data, size_bytes, root, interrupt);
}

Result<void> MpiBackend::allgather(const void* input, std::span<const std::size_t> sizes, void* out,
                                   Interrupt& interrupt) {
  const std::vector<Range> parts = ranges_of(sizes);
  const Range& own = parts[static_cast<std::size_t>(all_.self())];
  copy(static_cast<std::uint8_t*>(out) + own.begin, input, own.size());
  return all_.allgather(out, parts, interrupt);
}

Result<void> MpiBackend::reducescatter(const void* input, std::span<const std::size_t> sizes, void* out, Dtype dtype,
                                       ReduceOp op, Interrupt& interrupt) {
  HVD_CHECK(op != ReduceOp::kAverage);
  const std::vector<Range> parts = ranges_of(sizes);
  const Range& own = parts[static_cast<std::size_t>(all_.self())];
  HVD_TRY_ASSIGN(std::uint8_t* const whole, staging_.reserve(parts.back().end));
  copy(whole, input, parts.back().end);
  HVD_TRY(all_.reduce_scatter(whole, parts, dtype, op, interrupt));
  copy(out, whole + own.begin, own.size());
  return {};
}

Result<void> MpiBackend::alltoall(const void* input, std::span<const std::size_t> sizes, void* out,
                                  Interrupt& interrupt) {
  const auto ranks = static_cast<std::size_t>(all_.count());
  const auto self = static_cast<std::size_t>(all_.self());
  HVD_CHECK(sizes.size() == ranks * ranks);
  std::vector<std::size_t> sent;
  std::vector<std::size_t> received;
  for (std::size_t other = 0; other < ranks; ++other) {
    sent.push_back(sizes[self * ranks + other]);
    received.push_back(sizes[other * ranks + self]);
  }
  const std::vector<Range> outgoing = ranges_of(sent);
  const std::vector<Range> incoming = ranges_of(received);
  const auto* from_here = static_cast<const std::uint8_t*>(input);
  auto* to_here = static_cast<std::uint8_t*>(out);
  copy(to_here + incoming[self].begin, from_here + outgoing[self].begin, sent[self]);
  std::vector<MpiCollectives::Exchange> steps;
  for (int distance = 1; distance < all_.count(); ++distance) {
    const auto to = static_cast<std::size_t>(ring_next(all_.self(), all_.count(), distance));
    const auto from = static_cast<std::size_t>(ring_previous(all_.self(), all_.count(), distance));
    steps.push_back({static_cast<int>(to), from_here + outgoing[to].begin, outgoing[to].size(), static_cast<int>(from),
                     to_here + incoming[from].begin, incoming[from].size()});
  }
  return all_.exchange(steps, interrupt);
}

Result<void> MpiBackend::barrier(Interrupt& interrupt) {
  return all_.barrier(interrupt);
}

// Sets may share a tag if there are very many. The coordinator decides the order in which a rank works for its sets, so
// both ends of a message use the same order, and sharing does no harm.
Result<std::unique_ptr<Backend>> MpiBackendMaker::make(int process_set, const std::vector<int>& ranks, Mesh& /*mesh*/) {
  return std::unique_ptr<Backend>(new MpiBackend(comm_, ranks, kFirstTag + process_set % kTags));
}

// Adasum, among all ranks at once.

Result<void> MpiBackend::adasum(std::span<const MutableBytes> tensors, Dtype dtype, std::span<const int> averaged,
                                Interrupt& interrupt) {
  const ShareLayout layout(tensors, dtype, static_cast<std::size_t>(all_.count()));
  HVD_TRY_ASSIGN(std::uint8_t* const packed, staging_.reserve(adasum_room(layout)));
  layout.pack(tensors, packed);
  MpiParties ranks(all_, interrupt);
  HVD_TRY(combine_adasum(ranks, layout, dtype, averaged, packed));
  layout.unpack(packed, tensors);
  return {};
}

}  // namespace hvd
