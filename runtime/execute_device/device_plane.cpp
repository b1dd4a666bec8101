#include "runtime/execute_device/device_plane.h"

namespace hvd {
namespace {

// how long the ranks of a communicator may take to end it in order
constexpr Duration kEndTime = std::chrono::seconds(5);
// A batch puts up to about ten things on its stream. The driver keeps about a thousand of them, and a call that finds
// no room blocks until the device has gone on: the engine would then not hear of a rank that the device waits for.
constexpr std::size_t kMostBatches = 64;

class BatchTicket final : public DeviceTicket {
 public:
  BatchTicket(std::shared_ptr<Device> device, std::shared_ptr<Event> done)
      : device_(std::move(device)), done_(std::move(done)) {}
  Result<void> join(void* stream) override {
    return device_->wait_for(static_cast<StreamHandle>(stream), done_->handle());
  }

 private:
  const std::shared_ptr<Device> device_;
  const std::shared_ptr<Event> done_;
};

// Keeps an object that a device may still use because it does not stop, or whose destructor would wait for that device.
// The object is never destroyed; it ends with the process.
template <typename T>
void leave_behind(T owned) {
  static auto* const mu = new std::mutex;
  static auto* const left = new std::vector<T>;
  const std::lock_guard lock(*mu);
  left->push_back(std::move(owned));
}

std::string text_of(int ordinal) {
  return "GPU " + std::to_string(ordinal);
}

}  // namespace

DevicePlane::DevicePlane(Settings settings, Log& log,
                         std::function<void(DeviceBatch, const Result<void>&)> on_batch_end, std::function<void()> wake)
    : settings_(std::move(settings)),
      log_(log),
      wake_(std::move(wake)),
      finisher_({[this] {
                   const std::lock_guard lock(mu_);
                   if (pool_ != nullptr) {  // for good: the thread is our own
                     static_cast<void>(pool_->device()->set_capture_mode(CaptureMode::kRelaxed).ok());
                   }
                 },
                 std::move(on_batch_end),
                 [this](const Error& error) {
                   {
                     const std::lock_guard lock(mu_);
                     error_ = error;
                   }
                   wake_();
                 }},
                settings_.stall) {}

DevicePlane::~DevicePlane() {
  close(Duration::zero(), Error(Code::kCancelled, "the job was left"));
  if (pool_ == nullptr || !has_let_go_) {
    return;
  }
  const auto relaxed = ignore_captures();
  const std::shared_ptr<Device> device = pool_->device();
  pool_.reset();
  if (const auto released = device->release_result(); !released.ok()) {
    log_.write(LogLevel::kWarning,
               "the driver did not take back all that was made on the GPU: " + released.error().message());
  }
}

Result<std::shared_ptr<DevicePool>> DevicePlane::pool_of(int ordinal) {
  const std::lock_guard lock(mu_);
  if (pool_ == nullptr) {
    HVD_TRY_ASSIGN(auto device, Device::open(ordinal));
    pool_ = DevicePool::make(std::move(device));
  } else if (pool_->device()->info().ordinal != ordinal) {
    return Error(Code::kInvalid, "this rank works on " + text_of(pool_->device()->info().ordinal) +
                                     ", and the tensor lies on " + text_of(ordinal) +
                                     "; a rank has one GPU: choose it by hvd.local_rank()");
  }
  return pool_;
}

std::optional<RelaxedCapture> DevicePlane::ignore_captures() {
  const std::lock_guard lock(mu_);
  if (pool_ == nullptr) {
    return std::nullopt;
  }
  return std::optional<RelaxedCapture>(std::in_place, pool_->device());
}

Result<std::shared_ptr<DevicePool>> DevicePlane::any_pool() {
  {
    const std::lock_guard lock(mu_);
    if (pool_ != nullptr) {
      return pool_;
    }
  }
  auto own = pool_of(settings_.options.usual_device);
  return own.ok() || own.error().code() != Code::kNotFound ? own : pool_of(0);
}

Result<void> DevicePlane::mark(std::span<const OpRef> ops) {
  std::map<void*, ReadyMark> marks;
  for (const OpRef& op : ops) {
    const Submission& what = op->what;
    if (what.device < 0) {
      continue;
    }
    HVD_TRY_ASSIGN(const auto pool, pool_of(what.device));
    auto [at, is_new] = marks.try_emplace(what.stream);
    if (is_new) {
      auto* stream = static_cast<StreamHandle>(what.stream);
      HVD_TRY_ASSIGN(const bool is_capturing, pool->device()->is_capturing(stream));
      if (is_capturing) {
        return Error(Code::kInvalid, "a CUDA graph is being captured from the stream of '" + what.name +
                                         "'; what ranks do together cannot be part of a graph: end the capture first");
      }
      HVD_TRY_ASSIGN(at->second.event, pool->event());
      const std::lock_guard lock(marks_mu_);  // so that serials are in the order of the stream
      HVD_TRY(at->second.event->record(stream));
      at->second.stream = what.stream;
      at->second.serial = ++last_serial_;
    }
    op->ready = at->second;
  }
  return {};
}

void DevicePlane::tell(const std::string& notice, const DeviceExecutor::Host& host) {
  if (!notice.empty() && !has_told_ && host.map.rank == 0) {
    has_told_ = true;
    log_.write(LogLevel::kWarning, "tensors on GPUs go through the hosts' memory: " + notice);
  }
}

// The ranks first agree on what they have; then they make the communicator, if they can. NCCL gives memory back when it
// makes or ends one, also when that fails, and waits for the whole device. So nothing may be running there, here and in
// split() and remove_set(): this thread could not hear that a rank is lost, and nobody would end what runs.
Result<std::unique_ptr<DeviceExecutor>> DevicePlane::make_executor(const DeviceExecutor::Host& host,
                                                                   Interrupt& interrupt) {
  if (!nccl_) {
    nccl_ = NcclLibrary::load(settings_.options.nccl_library);
  }
  const auto pool = any_pool();
  const auto relaxed = ignore_captures();
  const auto device = pool.ok() ? Result<std::shared_ptr<Device>>(pool.value()->device())
                                : Result<std::shared_ptr<Device>>(pool.error());
  const DeviceParty party{host.ranks, host.map.rank, host.backend};
  DeviceOptions options = settings_.options;
  const bool is_kept_from_nccl = options.stays_on_host && host.map.node_count > 1;
  if (is_kept_from_nccl) {
    options.uses_nccl.fill(false);
  }
  HVD_TRY_ASSIGN(const auto facts, exchange_facts(party, make_facts(options, device, *nccl_), interrupt));
  DevicePlan plan = plan_devices(facts, host.ranks);
  if (is_kept_from_nccl) {
    plan.notice = "NCCL encrypts nothing that it sends to other hosts, which HVD_LINK_SECURITY asks for";
  }
  std::shared_ptr<NcclComm> comm;
  if (plan.kinds != 0) {
    HVD_TRY(finisher_.drain(0, interrupt));
    auto made = make_comm(party, device.value(), nccl_->value(), plan.shares_gpus, settings_.start_limit, interrupt);
    if (made.ok()) {
      comm = std::move(made).value();
      finisher_.watch(comm);
    } else if (plan.shares_gpus && interrupt.check().ok()) {
      plan.kinds = 0;
      plan.notice =
          "ranks share a GPU, which NCCL allows where they start with NCCL_MULTI_RANK_GPU_ENABLE=1, as hvdrun --gpus "
          "one starts them: " +
          made.error().message();
    } else {
      return made.error();
    }
  }
  tell(plan.notice, host);
  return DeviceExecutor::make(host, pool.ok() ? pool.value() : nullptr, std::move(plan), std::move(comm));
}

Result<DeviceExecutor*> DevicePlane::executor_of(int process_set, const DeviceExecutor::Host& host,
                                                 Interrupt& interrupt) {
  auto& executor = executors_[process_set];
  if (executor == nullptr) {
    HVD_TRY_ASSIGN(auto made, make_executor(host, interrupt));
    executors_[process_set] = std::move(made);
  }
  return executors_[process_set].get();
}

Result<void> DevicePlane::run(int process_set, const DeviceExecutor::Host& host, const Response& response,
                              std::span<PendingOp* const> ops, DeviceBatch& batch, Interrupt& interrupt) {
  batch.process_set = process_set;
  HVD_TRY(finisher_.drain(kMostBatches, interrupt));
  HVD_TRY_ASSIGN(DeviceExecutor * executor, executor_of(process_set, host, interrupt));
  const auto relaxed = ignore_captures();
  Result<void> launched = executor->run(response, ops, batch, interrupt);
  if (const std::string notice = executor->take_notice(); !notice.empty() && launched.ok() && !has_told_of_memory_) {
    has_told_of_memory_ = true;
    log_.write(LogLevel::kWarning,
               "tensors are packed into memory that is not NCCL's own, which may be slower: " + notice);
  }
  return launched;
}

void DevicePlane::add_batch(DeviceBatch batch) {
  if (batch.is_told) {
    std::shared_ptr<Device> device;
    {
      const std::lock_guard lock(mu_);
      device = pool_->device();
    }
    for (const OpRef& op : batch.ops) {
      op->completion->finish(std::exchange(op->output, std::nullopt),
                             std::make_shared<BatchTicket>(device, batch.done));
    }
  }
  finisher_.add(std::move(batch));
}

// Ranks of the job that are not members take part in the split, but get no communicator.
Result<std::shared_ptr<NcclComm>> DevicePlane::split(const std::optional<DeviceExecutor::Host>& host,
                                                     Interrupt& interrupt) {
  DeviceExecutor& all = *executors_.at(0);
  HVD_TRY(finisher_.drain(0, interrupt));
  const auto place = host ? NcclComm::Place{host->map.rank, host->map.size} : NcclComm::Place{};
  auto made = all.comm()->split(host ? 0 : kNcclNoColor, place, interrupt, Deadline::after(settings_.start_limit));
  // The others may wait for this rank, so the error ends the job.
  return made.ok() ? std::move(made)
                   : made.error().with_context("the NCCL communicator of a process set could not be split from all's");
}

Result<void> DevicePlane::add_set(int process_set, const std::optional<DeviceExecutor::Host>& host,
                                  Interrupt& interrupt) {
  const auto all = executors_.find(0);
  if (all == executors_.end() || all->second == nullptr || all->second->comm() == nullptr) {
    return {};  // the set makes its own when it has something to do
  }
  const auto relaxed = ignore_captures();
  HVD_TRY_ASSIGN(auto comm, split(host, interrupt));
  if (comm == nullptr) {
    return {};
  }
  finisher_.watch(comm);
  HVD_TRY_ASSIGN(const auto pool, any_pool());
  HVD_TRY_ASSIGN(executors_[process_set], DeviceExecutor::make(*host, pool, all->second->plan(), std::move(comm)));
  return {};
}

Result<void> DevicePlane::remove_set(int process_set, Interrupt& interrupt) {
  const auto found = executors_.find(process_set);
  if (found == executors_.end()) {
    return {};
  }
  HVD_TRY(finisher_.drain(0, interrupt));
  const auto relaxed = ignore_captures();
  if (const auto& comm = found->second->comm(); comm != nullptr) {
    finisher_.unwatch(comm);
    const auto finished = comm->finish(interrupt, Deadline::after(kEndTime));
    if (!finished.ok()) {
      log_.write(LogLevel::kDebug, finished.error().message());  // it is gone in any case
    }
  }
  executors_.erase(found);
  return {};
}

std::optional<Error> DevicePlane::take_error() {
  const std::lock_guard lock(mu_);
  return std::exchange(error_, std::nullopt);
}

void DevicePlane::abort(const Error& cause) {
  finisher_.abort(cause);
}

void DevicePlane::close(Duration limit, const Error& cause) {
  if (!finisher_.close(Deadline::after(limit), cause)) {
    leave_all_behind();
    return;
  }
  const auto relaxed = ignore_captures();
  NoInterrupt nobody;  // the engine is gone
  for (const auto& [number, executor] : executors_) {
    if (executor != nullptr && executor->comm() != nullptr) {
      finisher_.unwatch(executor->comm());
      const auto finished = executor->comm()->finish(nobody, Deadline::after(kEndTime));
      if (!finished.ok()) {
        log_.write(LogLevel::kDebug, finished.error().message());
      }
    }
  }
  executors_.clear();
}

void DevicePlane::leave_all_behind() {
  if (!std::exchange(has_let_go_, false)) {
    return;
  }
  log_.write(LogLevel::kWarning,
             "the GPU, or NCCL, is still at work that was aborted; what it uses is given back when this process ends");
  for (auto& [number, executor] : executors_) {
    leave_behind(std::move(executor));
  }
  executors_.clear();
  const std::lock_guard lock(mu_);
  leave_behind(pool_);
}

}  // namespace hvd
