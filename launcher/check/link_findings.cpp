#include "launcher/check/link_findings.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "launcher/state/exit_codes.h"

namespace hvd::launch {
namespace {

// Smaller differences are noise, whatever the median is: a busy processor, a small network.
constexpr Duration kLeastSlowRoundTrip = std::chrono::milliseconds(1);
constexpr std::size_t kLeastMeasures = 3;
constexpr std::size_t kNamedSlowLinks = 5;

template <typename T>
T median(std::vector<T> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string advice_for(const CheckResult& result, const CheckedLink& link) {
  const std::string& to = result.hosts[static_cast<std::size_t>(link.to)].name();
  switch (link.stage) {
    case ProbeStage::kConnect:
      return "ranks call each other at ports that the kernel chooses; is a firewall between them (on " + to +
             ": nft list ruleset, iptables -L), or is this the wrong address?";
    case ProbeStage::kProve:
      return "something else answers at this address: a proxy, or another machine that has the same";
    case ProbeStage::kPing:
    case ProbeStage::kStream:
      return "a connection is made, but data does not come through; try: ping -M do -s 1472 " + to +
             " (a smaller MTU on the way?)";
    case ProbeStage::kDone:
      break;
  }
  return "";
}

// Broken is a set of links to one host that failed at the same stage. Behind one firewall all links do.
struct Broken {
  int to = 0;
  ProbeStage stage = ProbeStage::kConnect;
  std::vector<int> from;
  std::string error;   // of the first link
  std::string advice;  // of the first link
};

std::vector<Broken> broken_links(const CheckResult& result) {
  std::map<std::pair<int, ProbeStage>, Broken> groups;
  for (const CheckedLink& link : result.links) {
    if (link.was_tried && !link.error.empty()) {
      Broken& group = groups[{link.to, link.stage}];
      if (group.from.empty()) {
        group = Broken{link.to, link.stage, {}, link.error, advice_for(result, link)};
      }
      group.from.push_back(link.from);
    }
  }
  std::vector<Broken> broken;
  for (auto& [key, group] : groups) {
    broken.push_back(std::move(group));
  }
  return broken;
}

// Finds the other direction of a link, where both directions are the only broken links to their hosts.
std::vector<Broken>::iterator other_direction(std::vector<Broken>& broken, std::vector<Broken>::iterator of) {
  return std::find_if(std::next(of), broken.end(), [of](const Broken& other) {
    return of->from.size() == 1 && other.from.size() == 1 && other.stage == of->stage && other.from.front() == of->to &&
           other.to == of->from.front();
  });
}

void find_broken(const CheckResult& result, std::vector<Finding>& findings) {
  std::vector<Broken> broken = broken_links(result);
  for (auto at = broken.begin(); at != broken.end(); ++at) {
    const CheckedHost& to = result.hosts[static_cast<std::size_t>(at->to)];
    const std::string address = to.address.empty() ? "" : " at " + to.address;
    Finding finding{Subject::kLink, true, exit_code::kUnreachable, at->from, "", at->advice};
    finding.what = host_names(result, at->from);
    if (const auto other = other_direction(broken, at); other != broken.end()) {
      finding.what += " and " + to.name() + " cannot reach each other: " + at->error + "; " + other->error;
      broken.erase(other);
    } else {
      finding.what += " cannot reach " + to.name() + address + ": " + at->error;
    }
    finding.hosts.push_back(at->to);
    findings.push_back(std::move(finding));
  }
}

void find_untried(const CheckResult& result, std::vector<Finding>& findings) {
  const auto untried =
      std::count_if(result.links.begin(), result.links.end(), [](const CheckedLink& link) { return !link.was_tried; });
  if (untried > 0 && result.interrupted_by == 0) {
    findings.push_back({Subject::kLink,
                        false,
                        0,
                        {},
                        std::to_string(untried) + " of " + std::to_string(result.links.size()) +
                            " links between hosts were not tried within --start-timeout",
                        "give it more time, as in --start-timeout 300"});
  }
}

std::string text_of(Duration round_trip) {
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(round_trip).count();
  return us < 10'000 ? std::to_string(us) + " us" : std::to_string(us / 1000) + " ms";
}

std::string text_of(double bytes_per_second) {
  const auto megabytes = static_cast<long>(bytes_per_second / 1e6);
  return std::to_string(megabytes) + " MB/s";
}

std::string slowness_of(const CheckResult& result, const CheckedLink& link) {
  std::string text = result.hosts[static_cast<std::size_t>(link.from)].name() + " to " +
                     result.hosts[static_cast<std::size_t>(link.to)].name() + " (";
  const bool slow_trip = has_slow_round_trip(result, link);
  text += slow_trip ? "a round trip takes " + text_of(link.round_trip) : "";
  if (has_slow_bandwidth(result, link)) {
    text += (slow_trip ? ", and " : "") + text_of(link.bytes_per_second) + " go through";
  }
  return text + ")";
}

// Puts all slow links into one finding: where many are slow, the cause is seldom a single link.
void find_slow(const CheckResult& result, std::vector<Finding>& findings) {
  Finding finding;
  finding.subject = Subject::kSpeed;
  finding.advice = "measure it again when the hosts are idle; then look at the cable, the switch port and ethtool";
  std::size_t count = 0;
  std::set<int> hosts;
  for (const CheckedLink& link : result.links) {
    if (!has_slow_round_trip(result, link) && !has_slow_bandwidth(result, link)) {
      continue;
    }
    ++count;
    hosts.insert({link.from, link.to});
    if (count <= kNamedSlowLinks) {
      finding.what += (count == 1 ? "" : ", ") + slowness_of(result, link);
    }
  }
  if (count == 0) {
    return;
  }
  finding.what = "much slower than the other links: " + finding.what;
  finding.what += count > kNamedSlowLinks ? ", and " + std::to_string(count - kNamedSlowLinks) + " more" : "";
  finding.hosts.assign(hosts.begin(), hosts.end());
  findings.push_back(std::move(finding));
}

}  // namespace

bool has_slow_round_trip(const CheckResult& result, const CheckedLink& link) {
  std::vector<Duration> all;
  for (const CheckedLink& other : result.links) {
    if (other.works() && other.round_trip > Duration::zero()) {
      all.push_back(other.round_trip);
    }
  }
  return link.works() && all.size() >= kLeastMeasures && link.round_trip > kLeastSlowRoundTrip &&
         std::chrono::duration<double>(link.round_trip) > std::chrono::duration<double>(median(all)) * kSlowRoundTrip;
}

bool has_slow_bandwidth(const CheckResult& result, const CheckedLink& link) {
  std::vector<double> all;
  for (const CheckedLink& other : result.links) {
    if (other.works() && other.bytes_per_second > 0) {
      all.push_back(other.bytes_per_second);
    }
  }
  return link.works() && link.bytes_per_second > 0 && all.size() >= kLeastMeasures &&
         link.bytes_per_second < median(all) * kSlowBandwidth;
}

void find_link_faults(const CheckResult& result, std::vector<Finding>& findings) {
  find_broken(result, findings);
  find_untried(result, findings);
  find_slow(result, findings);
}

}  // namespace hvd::launch
