#include "launcher/offers/first_hosts.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// SeatsWait looks at the seats whenever hosts come or return, and stops the loop when they are enough.
class SeatsWait {
 public:
  SeatsWait(EventLoop& loop, HostSource* source, HostOffers& offers, const SeatsWanted& wanted)
      : loop_(loop), source_(source), offers_(offers), wanted_(wanted) {}
  ~SeatsWait() {
    for (const TimerId timer : {best_timer_, end_timer_, return_timer_}) {
      loop_.cancel(timer);
    }
    if (source_ != nullptr) {
      source_->stop();
    }
  }
  SeatsWait(const SeatsWait&) = delete;
  SeatsWait& operator=(const SeatsWait&) = delete;

  Result<void> run(const std::function<void(const std::string&)>& say) {
    is_late_ = wanted_.best_patience <= Duration::zero();
    best_timer_ = loop_.after(wanted_.best_patience, [this] {
      is_late_ = true;
      look();
    });
    end_timer_ = loop_.after(std::max(wanted_.patience, wanted_.best_patience), [this] { loop_.stop(); });
    if (source_ == nullptr) {
      is_known_ = true;
      loop_.post([this] { look(); });
    } else {
      HostSource::Handlers handlers;
      handlers.on_hosts = [this](const HostList& hosts) {
        offers_.set(hosts);
        is_known_ = true;
        look();
      };
      handlers.on_trouble = [this, &say](const std::string& why) {
        say(why);
        is_known_ = true;  // the hosts stay as they were
        look();
      };
      source_->start(std::move(handlers));
    }
    return loop_.run();
  }

 private:
  void look() {
    const int count = is_known_ ? offers_.seats(loop_.now()).count : 0;
    if (count >= wanted_.best || (is_late_ && count >= wanted_.least)) {
      return loop_.stop();
    }
    loop_.cancel(std::exchange(return_timer_, 0));
    if (const auto next = offers_.next_return(loop_.now())) {
      return_timer_ = loop_.after(*next - loop_.now(), [this] {
        return_timer_ = 0;
        look();
      });
    }
  }

  EventLoop& loop_;
  HostSource* const source_;
  HostOffers& offers_;
  const SeatsWanted wanted_;
  bool is_known_ = false;  // the source has told its hosts
  bool is_late_ = false;   // the best is not waited for any more
  TimerId best_timer_ = 0;
  TimerId end_timer_ = 0;
  TimerId return_timer_ = 0;
};

}  // namespace

Result<HostList> await_first_hosts(EventLoop& loop, HostSource& source, int least, Duration patience,
                                   const std::function<void(const std::string&)>& say) {
  std::optional<HostList> known;
  std::optional<Error> failed;
  long long slots = 0;
  HostSource::Handlers handlers;
  handlers.has_hosts = false;
  handlers.on_hosts = [&](const HostList& hosts) {
    slots = 0;
    for (const HostSpec& host : hosts) {
      slots += host.slots;
    }
    known = hosts;
    if (slots >= least) {
      return loop.stop();
    }
    say("the hosts have " + counted(static_cast<std::size_t>(slots), "slot") + " of the " + std::to_string(least) +
        " that the job needs to begin; waiting for more");
  };
  handlers.on_trouble = [&](const std::string& why) {
    if (known) {
      return say(why);
    }
    failed = Error(Code::kInvalid, why);
    loop.stop();
  };
  source.start(std::move(handlers));
  const TimerId timer = loop.after(patience, [&] {
    failed = Error(Code::kTimeout, "the hosts had " + counted(static_cast<std::size_t>(slots), "slot") + " of the " +
                                       std::to_string(least) + " that the job needs to begin (-np), for " +
                                       duration_text(patience) + " (--elastic-timeout)");
    loop.stop();
  });
  const auto ran = loop.run();
  loop.cancel(timer);
  source.stop();
  HVD_TRY(ran);
  if (failed) {
    return *failed;
  }
  return *std::move(known);
}

Result<void> await_seats(EventLoop& loop, HostSource* source, HostOffers& offers, const SeatsWanted& wanted,
                         const std::function<void(const std::string&)>& say) {
  HVD_TRY(SeatsWait(loop, source, offers, wanted).run(say));
  const int count = offers.seats(loop.now()).count;
  return count >= wanted.least
             ? Result<void>()
             : Error(Code::kTimeout, "the hosts that are left have " +
                                         counted(static_cast<std::size_t>(count), "slot") + " of the " +
                                         std::to_string(wanted.least) +
                                         " that the job needs to start again (--min-np), and no other has come for " +
                                         duration_text(std::max(wanted.patience, wanted.best_patience)));
}

}  // namespace hvd::launch
