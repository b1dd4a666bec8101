#include "runtime/mpi/mpi_places.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <optional>

#include "runtime/base/bytes.h"

namespace hvd {
namespace {

// Counts the leading bits that two addresses of one family have in common; -1 if the families differ.
int common_bits(const std::string& a, const std::string& b) {
  for (const int family : {AF_INET, AF_INET6}) {
    std::array<std::uint8_t, 16> left{};
    std::array<std::uint8_t, 16> right{};
    const bool is_left = ::inet_pton(family, a.c_str(), left.data()) == 1;
    const bool is_right = ::inet_pton(family, b.c_str(), right.data()) == 1;
    if (is_left != is_right) {
      return -1;
    }
    for (std::size_t byte = 0; is_left && byte < left.size(); ++byte) {
      if (left[byte] != right[byte]) {
        return static_cast<int>(byte) * 8 + std::countl_zero(static_cast<std::uint8_t>(left[byte] ^ right[byte]));
      }
    }
    if (is_left) {
      return 128;
    }
  }
  return -1;
}

}  // namespace

RankMap map_by_hosts(std::span<const MpiPlace> places, int rank) {
  std::vector<std::string> hosts;
  std::vector<int> node_of;
  for (const MpiPlace& place : places) {
    const auto found = std::find(hosts.begin(), hosts.end(), place.host);
    node_of.push_back(static_cast<int>(found - hosts.begin()));
    if (found == hosts.end()) {
      hosts.push_back(place.host);
    }
  }
  return map_of(node_of, rank);
}

RankMap map_by_runs(std::span<const MpiPlace> places, int rank) {
  std::vector<int> node_of;
  for (std::size_t other = 0; other < places.size(); ++other) {
    const bool goes_on =
        other > 0 && places[other].host == places[other - 1].host && places[other].sharing == places[other - 1].sharing;
    node_of.push_back(other == 0 ? 0 : node_of.back() + (goes_on ? 0 : 1));
  }
  return map_of(node_of, rank);
}

Result<std::string> address_among(std::span<const MpiPlace> places, int rank) {
  const MpiPlace& own = places[static_cast<std::size_t>(rank)];
  const auto is_same = [&own](const MpiPlace& other) { return other.host == own.host && other.network == own.network; };
  if (!own.chosen_ip.empty()) {
    return own.chosen_ip;
  }
  if (std::all_of(places.begin(), places.end(), is_same)) {
    return map_by_runs(places, rank).node_count > 1 ? std::string("127.0.0.1") : std::string();
  }
  // All hosts look for an address near the first rank's host; that one looks for one near the first other host.
  const MpiPlace& there =
      is_same(places.front()) ? *std::find_if_not(places.begin(), places.end(), is_same) : places.front();
  const auto is_ambiguous = [&](const std::string& ip) {
    return std::any_of(places.begin(), places.end(), [&](const MpiPlace& other) {
      return !is_same(other) && std::find(other.ips.begin(), other.ips.end(), ip) != other.ips.end();
    });
  };
  std::optional<std::string> best;
  int best_bits = -2;
  for (const std::string& ip : own.ips) {
    if (is_ambiguous(ip)) {
      continue;
    }
    const int bits = std::accumulate(there.ips.begin(), there.ips.end(), -1, [&ip](int most, const std::string& other) {
      return other == ip ? most : std::max(most, common_bits(ip, other));
    });
    if (bits > best_bits) {
      best_bits = bits;
      best = ip;
    }
  }
  if (!best) {
    return Error(Code::kInvalid, "host " + own.host.substr(0, own.host.find(' ')) +
                                     " has no address for other hosts; set HVD_NODE_ADDRESS to one on each host");
  }
  return *best;
}

std::string encode(const MpiPlace& place) {
  ByteWriter out;
  out.text(place.host).text(place.sharing).text(place.network).text(place.chosen_ip);
  out.u32(static_cast<std::uint32_t>(place.ips.size()));
  for (const std::string& ip : place.ips) {
    out.text(ip);
  }
  return std::move(out).str();
}

Result<MpiPlace> decode_mpi_place(const std::string& body, int rank) {
  ByteReader in(body);
  MpiPlace place;
  place.host = in.text();
  place.sharing = in.text();
  place.network = in.text();
  place.chosen_ip = in.text();
  for (std::uint32_t count = in.count(sizeof(std::uint32_t)); count > 0; --count) {
    place.ips.push_back(in.text());
  }
  if (!in.finished()) {
    return Error(Code::kProtocol, "rank " + std::to_string(rank) + " reports an impossible place");
  }
  return place;
}

}  // namespace hvd
