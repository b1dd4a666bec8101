#include "runtime/mpi/mpi_store.h"

#include <cstdint>
#include <numeric>

#include "runtime/base/bytes.h"
#include "runtime/mpi/mpi_collectives.h"
#include "runtime/mpi/mpi_process.h"

namespace hvd {
namespace {

constexpr int kTag = 1;  // see mpi_backend.cpp
// A rank sends only some hundred bytes, so a longer text is an error.
constexpr std::uint64_t kMaxTextBytes = 1U << 20U;

class ExchangeInterrupt final : public Interrupt {
 public:
  ExchangeInterrupt(Store& store, Deadline deadline, Interrupt& engine)
      : store_(store), deadline_(deadline), engine_(engine) {}
  Result<void> check() override {
    if (const auto notice = store_.poll_notice()) {
      return Error(Code::kLostPeer, notice->cause);
    }
    HVD_TRY(engine_.check());
    return deadline_.check();
  }
  void note_sleep() override { engine_.note_sleep(); }

 private:
  Store& store_;
  DeadlineInterrupt deadline_;
  Interrupt& engine_;
};

// Returns the mark of this thread. The system gives a thread's id to a later one, but not a mark that somebody keeps.
std::shared_ptr<const char> own_thread() {
  thread_local const std::shared_ptr<const char> mark = std::make_shared<char>();
  return mark;
}

}  // namespace

Result<std::vector<std::string>> gather_texts(MpiComm& comm, const std::string& own, Interrupt& interrupt) {
  const auto size = static_cast<std::size_t>(comm.size());
  const auto self = static_cast<std::size_t>(comm.rank());
  std::vector<int> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  MpiCollectives all(comm, std::move(ranks), kTag);

  std::vector<std::uint64_t> lengths(size);
  std::vector<Range> parts;
  for (std::size_t rank = 0; rank < size; ++rank) {
    parts.push_back(Range{rank * sizeof lengths.front(), (rank + 1) * sizeof lengths.front()});
  }
  lengths[self] = own.size();
  HVD_TRY(all.allgather(lengths.data(), parts, interrupt));

  std::size_t total = 0;
  for (std::size_t rank = 0; rank < size; ++rank) {
    if (lengths[rank] > kMaxTextBytes) {
      return Error(Code::kProtocol, "rank " + std::to_string(rank) + " sends " + std::to_string(lengths[rank]) +
                                        " bytes of itself over MPI");
    }
    parts[rank] = Range{total, total + lengths[rank]};
    total += lengths[rank];
  }
  std::string texts(total, '\0');
  own.copy(texts.data() + parts[self].begin, own.size());
  HVD_TRY(all.allgather(texts.data(), parts, interrupt));
  std::vector<std::string> gathered;
  for (const Range& part : parts) {
    gathered.push_back(texts.substr(part.begin, part.size()));
  }
  return gathered;
}

MpiStore::MpiStore(std::shared_ptr<MpiComm> comm, const JobSecret& secret, std::unique_ptr<Store> news,
                   std::vector<int> launcher_ranks)
    : comm_(std::move(comm)),
      secret_(secret),
      news_(std::move(news)),
      launcher_ranks_(std::move(launcher_ranks)),
      maker_(own_thread()) {}

FailureNews MpiStore::for_launcher(FailureNews news) const {
  if (news.by >= 0 && static_cast<std::size_t>(news.by) < launcher_ranks_.size()) {
    news.by = launcher_ranks_[static_cast<std::size_t>(news.by)];
  }
  return news;
}

Result<std::vector<std::string>> MpiStore::exchange_while(const std::string& key, const std::string& value,
                                                          Deadline deadline, Interrupt& interrupt) {
  const MpiThreads threads = MpiProcess::instance().threads();
  if (threads < MpiThreads::kSerialized && own_thread() != maker_) {
    return Error(Code::kInvalid, std::string("the program has started MPI with ") + name_of(threads) +
                                     ", and a process set needs MPI_THREAD_SERIALIZED or more; start it with that, or "
                                     "leave it to hvd.init()");
  }
  ExchangeInterrupt either(*this, deadline, interrupt);
  ByteWriter own;
  own.text(key).text(value);
  HVD_TRY_ASSIGN(const std::vector<std::string> bodies, gather_texts(*comm_, own.str(), either));
  std::vector<std::string> values;
  for (const std::string& body : bodies) {
    ByteReader in(body);
    const std::string their_key = in.text();
    values.push_back(in.text());
    if (!in.finished() || their_key != key) {
      return Error(Code::kProtocol, "rank " + std::to_string(values.size() - 1) + " exchanges '" + their_key +
                                        "' where this one exchanges '" + key + "'");
    }
  }
  return values;
}

}  // namespace hvd
