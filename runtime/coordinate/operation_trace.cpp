#include "runtime/coordinate/operation_trace.h"

#include "runtime/execute/op_trace.h"
#include "runtime/observe/timeline_file.h"

namespace hvd {

void OperationTrace::open(const TimelineOptions& options, Log& log) {
  timeline_ =
      std::make_unique<Timeline>(options, [&log](const Error& why) { log.write(LogLevel::kWarning, why.message()); });
  if (options.path.empty()) {
    return;
  }
  const std::string path = options.keeps_earlier ? unused_timeline_path(options.path) : options.path;
  if (const auto started = timeline_->start(path, options.marks_cycles); !started.ok()) {
    log.write(LogLevel::kError, started.error().message() + "; the job goes on without");
  } else if (path != options.path) {
    log.write(LogLevel::kWarning, "the timeline goes on in '" + path + "', since the job has begun anew");
  }
}

void OperationTrace::asked(int rank, const Request& request) {
  Timeline::Moment now(*timeline_);
  now.asked({request.process_set, request.name}, request.kind, rank);
  for (const GroupTensor& tensor : request.group) {
    now.asked({request.process_set, tensor.name}, request.kind, rank);
  }
}

void OperationTrace::ready(const Response& response, std::span<const std::string> names, bool runs_here) {
  Timeline::Moment now(*timeline_);
  for (const std::string& name : names) {
    now.ready({response.process_set, name}, response.kind, runs_here);
  }
}

void OperationTrace::ready(const Request& request, bool runs_here) {
  Timeline::Moment now(*timeline_);
  now.ready({request.process_set, request.name}, request.kind, runs_here);
  for (const GroupTensor& tensor : request.group) {
    now.ready({request.process_set, tensor.name}, request.kind, runs_here);
  }
}

void OperationTrace::decided() {
  Timeline::Moment(*timeline_).cycle();
}

void OperationTrace::pause(std::span<PendingOp* const> ops) {
  Timeline::Moment now(*timeline_);
  for (const PendingOp* op : ops) {
    now.pause(trace_key(op->what), op->what.kind);
  }
}

void OperationTrace::end(std::span<PendingOp* const> ops) {
  Timeline::Moment now(*timeline_);
  for (const PendingOp* op : ops) {
    now.done(trace_key(op->what), op->what.kind, op->what.dtype, op->what.shape);
  }
}

void OperationTrace::end(std::span<const OpRef> ops) {
  Timeline::Moment now(*timeline_);
  for (const OpRef& op : ops) {
    now.done(trace_key(op->what), op->what.kind, op->what.dtype, op->what.shape);
  }
}

void OperationTrace::quick(int process_set, const QuickOp& op, std::uint64_t began) {
  const std::string noname = op.name.empty() ? noname_of(op.kind, op.noname) : std::string();
  const TraceKey key{process_set, op.name.empty() ? std::string_view(noname) : op.name};
  Timeline::Moment(*timeline_).met(key, op.kind, began, op.dtype, op.shape);
}

}  // namespace hvd
