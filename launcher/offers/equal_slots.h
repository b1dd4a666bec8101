// EqualSlots is a HostSource that gives all hosts of another one the same number of slots, whatever it says of them:
// the nodes of a job file all have as many processes.
//
// Thread: loop only.
#pragma once

#include <memory>

#include "launcher/offers/host_source.h"

namespace hvd::launch {

class EqualSlots final : public HostSource {
 public:
  EqualSlots(std::unique_ptr<HostSource> inner, int slots) : inner_(std::move(inner)), slots_(slots) {}

  void start(Handlers handlers) override;
  void stop() override { inner_->stop(); }
  void note_use(const HostUse& use) override { inner_->note_use(use); }

 private:
  const std::unique_ptr<HostSource> inner_;
  const int slots_;
};

}  // namespace hvd::launch
