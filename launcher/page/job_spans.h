// job_spans() tells a job to OpenTelemetry: one OTLP/JSON document with a span for the job, for each of its steps, for
// the start of each node and for each process of a rank. Collectors read it as they read what SDKs send
// (ExportTraceServiceRequest, opentelemetry-proto 1.x).
//
// Pure. Thread: any.
#pragma once

#include <string>
#include <vector>

#include "launcher/page/job_history.h"

namespace hvd::launch {

struct JobSpanStep {
  std::string name;  // "job", "preparation"
  JobHistory history;
};

struct SpanPlace {
  std::string trace;   // 32 hexadecimal digits
  std::string parent;  // 16: the span in which hvdrun was started; empty: none
};

// Returns what the W3C's TRACEPARENT says ("00-TRACE-PARENT-01"); a trace that is empty: it says nothing that counts.
SpanPlace span_place_of(const std::string& traceparent);
// What has not ended yet ends at its history's latest moment.
std::string job_spans(const std::vector<JobSpanStep>& steps, const SpanPlace& place);

}  // namespace hvd::launch
