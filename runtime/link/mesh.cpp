#include "runtime/link/mesh.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include <stdlib.h>

#include "runtime/base/open_files.h"
#include "runtime/base/text.h"
#include "runtime/io/socket.h"
#include "runtime/link/mesh_peer.h"
#include "runtime/link/shm_segment.h"
#include "runtime/link/stream_io.h"
#include "runtime/rendezvous/subset_store.h"

namespace hvd {
namespace {

// The keys of a meeting's exchanges, in this order.
constexpr const char* kPeersKey = kMeetingKey;
constexpr const char* kJoinedKey = kMetKey;

// The file of a unix listener, and its directory if that was made for it. Both are removed with this object.
class ScratchSocket {
 public:
  ScratchSocket() = default;
  ~ScratchSocket() {
    if (!path_.empty()) {
      ::unlink(path_.c_str());
    }
    if (!made_dir_.empty()) {
      ::rmdir(made_dir_.c_str());
    }
  }
  ScratchSocket(const ScratchSocket&) = delete;
  ScratchSocket& operator=(const ScratchSocket&) = delete;

  Result<Fd> listen(const MeshOptions& options, int rank, int backlog) {
    std::string dir = options.scratch_dir;
    if (dir.empty()) {
      std::string name = "/tmp/hvd-XXXXXX";
      if (::mkdtemp(name.data()) == nullptr) {
        return Error::from_errno("mkdtemp " + name);
      }
      made_dir_ = dir = name;
    }
    // No other context or job has this name, even if several share the directory.
    HVD_TRY_ASSIGN(const Nonce nonce, make_nonce());
    static constexpr std::size_t kRandomBytes = 6;
    std::string path = dir + "/mesh-" + std::to_string(rank) + "-";
    path += hex(std::span(nonce).first(kRandomBytes));
    HVD_TRY_ASSIGN(Fd listener, listen_unix(path, backlog));
    path_ = path;
    return listener;
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::string made_dir_;
};

// The sockets on which this rank accepts the others; closed when the meeting is over.
struct Listeners {
  Fd tcp;
  Fd unix_socket;
  ScratchSocket scratch;
};

Result<MeshPeer> open_listeners(const RankMap& map, const MeshOptions& options, Listeners& listeners) {
  MeshPeer self;
  self.size = map.size;
  self.node_count = map.node_count;
  self.node_index = map.node_index;
  self.local_rank = map.local_rank;
  self.local_size = map.local_size;
  self.is_sealed = options.is_sealed;
  self.word = map.is_coordinator() ? options.word : "";
  const int backlog = std::max(map.size, 128);
  if (map.is_leader() && map.node_count > 1) {
    if (options.node_address.empty()) {
      return Error(Code::kInvalid,
                   "node " + std::to_string(map.node_index) + " has no address for other nodes; set HVD_NODE_ADDRESS");
    }
    HVD_TRY_ASSIGN(const SocketAddress any_port, SocketAddress::make(options.node_address, 0));
    HVD_TRY_ASSIGN(listeners.tcp, listen_tcp(any_port, backlog));
    HVD_TRY(choose_congestion(listeners.tcp.get(), options.congestion));
    HVD_TRY_ASSIGN(const SocketAddress bound, SocketAddress::local_of(listeners.tcp.get()));
    self.tcp_ip = options.node_address;
    self.tcp_port = bound.port();
  }
  if (map.is_leader() && map.local_size > 1) {
    HVD_TRY_ASSIGN(listeners.unix_socket, listeners.scratch.listen(options, map.rank, backlog));
    self.unix_path = listeners.scratch.path();
  }
  return self;
}

Result<std::vector<MeshPeer>> publish(const MeshPeer& self, Store& store, Deadline deadline) {
  HVD_TRY_ASSIGN(const std::vector<std::string> bodies, store.exchange(kPeersKey, encode(self), deadline));
  std::vector<MeshPeer> peers;
  for (const std::string& body : bodies) {
    HVD_TRY_ASSIGN(MeshPeer peer, decode_mesh_peer(body, static_cast<int>(peers.size())));
    peers.push_back(std::move(peer));
  }
  return peers;
}

Result<void> connect_to(Meeting& meeting, LinkRole role, int to, const MeshPeer& peer, bool same_node) {
  if (same_node) {
    return meeting.connect_by_unix(role, to, peer.unix_path);
  }
  auto address = SocketAddress::make(peer.tcp_ip, peer.tcp_port);
  if (!address.ok()) {
    return address.error().with_context("the address of rank " + std::to_string(to));
  }
  return meeting.connect_by_tcp(role, to, address.value());
}

bool has_rounds(const RankMap& map) {
  return map.is_leader() && map.node_count > 1 && map.node_count <= HostRounds::kMostNodes;
}

int leader_of(const RankMap& map, int node) {
  return static_cast<int>(std::find(map.node_of_rank.begin(), map.node_of_rank.end(), node) - map.node_of_rank.begin());
}

// Determines which connections this rank makes and which it accepts. Of two ends, the one on the later node (or with
// the higher rank) connects.
Result<void> invite(Meeting& meeting, const RankMap& map, const std::vector<MeshPeer>& peers, bool has_control) {
  const int leader = map.rank - map.local_rank;
  if (map.is_coordinator()) {
    for (int rank = 1; rank < map.size && has_control; ++rank) {
      meeting.expect(LinkRole::kControl, rank);
    }
  } else if (has_control) {
    HVD_TRY(connect_to(meeting, LinkRole::kControl, 0, peers[0], map.node_of_rank[0] == map.node_index));
  }
  if (!map.is_leader()) {
    return connect_to(meeting, LinkRole::kSegment, leader, peers[static_cast<std::size_t>(leader)], true);
  }
  for (int rank = leader + 1; rank < leader + map.local_size; ++rank) {
    meeting.expect(LinkRole::kSegment, rank);
  }
  for (int rank = 0; rank < map.size; ++rank) {
    const MeshPeer& peer = peers[static_cast<std::size_t>(rank)];
    if (peer.local_rank != 0 || rank == map.rank) {
      continue;
    }
    if (rank > map.rank) {
      meeting.expect(LinkRole::kData, rank);
    } else {
      HVD_TRY(connect_to(meeting, LinkRole::kData, rank, peer, false));
    }
  }
  for (const int node :
       has_rounds(map) ? HostRounds::partners_of(map.node_index, map.node_count) : std::vector<int>()) {
    const int rank = leader_of(map, node);
    if (rank > map.rank) {
      meeting.expect(LinkRole::kRounds, rank);
    } else {
      HVD_TRY(connect_to(meeting, LinkRole::kRounds, rank, peers[static_cast<std::size_t>(rank)], false));
    }
  }
  return {};
}

// Receives what the leader sends with send_fd.
Result<std::unique_ptr<ShmSegment>> receive_segment(int socket, const RankMap& map, Store& store, Deadline deadline) {
  Patience patience(deadline);
  for (;;) {
    HVD_TRY_ASSIGN(Fd memory, ShmSegment::receive_fd(socket));
    if (memory.is_open()) {
      return ShmSegment::attach(std::move(memory), map.local_size, map.local_rank);
    }
    if (patience.is_over()) {
      return Error(Code::kTimeout, "the shared memory of node " + std::to_string(map.node_index) +
                                       " did not come from its leader in time");
    }
    pollfd waits[] = {{socket, POLLIN, 0}, {store.notice_fd(), POLLIN, 0}};
    static constexpr int kNoticeEveryMs = 100;
    ::poll(waits, 2, std::min(patience.until().poll_ms(), kNoticeEveryMs));
    if (const auto notice = store.poll_notice()) {
      return Error(Code::kLostPeer, notice->cause);
    }
  }
}

// Called after a failed meeting. A peer often closes a connection because the job is over, and the agent's notice of
// that may still be on its way. That notice is then the cause to report, not the connection. So this waits for it for
// 500 ms at most, within the deadline.
std::optional<Notice> await_notice(Store& store, Deadline deadline) {
  const Deadline patience(std::min(deadline.at(), Deadline::after(std::chrono::milliseconds(500)).at()));
  for (;;) {
    if (auto notice = store.poll_notice(); notice || patience.has_passed()) {
      return notice;
    }
    pollfd wait{store.notice_fd(), POLLIN, 0};
    static constexpr int kNoticeEveryMs = 50;  // for stores without a notice_fd
    ::poll(&wait, 1, std::min(patience.poll_ms(), kNoticeEveryMs));
  }
}

Result<void> check_map(const RankMap& map) {
  const bool is_valid = map.size >= 1 && map.rank >= 0 && map.rank < map.size && map.node_count >= 1 &&
                        map.node_index >= 0 && map.node_index < map.node_count && map.local_rank >= 0 &&
                        map.local_rank < map.local_size && map.local_rank <= map.rank && map.local_size <= map.size;
  if (is_valid) {
    return {};
  }
  return Error(Code::kInvalid, "rank " + std::to_string(map.rank) + " of " + std::to_string(map.size) +
                                   ", local rank " + std::to_string(map.local_rank) + " of " +
                                   std::to_string(map.local_size) + ", node " + std::to_string(map.node_index) +
                                   " of " + std::to_string(map.node_count) + " cannot be");
}

Result<void> tune(const Fd& fd, LinkRole role, const std::string& congestion) {
  HVD_TRY_ASSIGN(const SocketAddress address, SocketAddress::local_of(fd.get()));
  if (address.family() == AF_UNIX) {
    return {};
  }
  HVD_TRY(tune_tcp(fd.get()));
  if (congestion.empty()) {
    settle_congestion(fd.get());
  }
  // A data connection has no such limit, as its peer may be stopped in a debugger; link/stream_io.h watches it.
  return role == LinkRole::kControl ? limit_unanswered(fd.get()) : Result<void>();
}

// Raises the limit of open files before anything is opened. A peer whose connection we could not accept would take that
// for a wrong secret. The limit belongs to the user's program, and stays as it is where it is high enough.
Result<void> allow_files(const RankMap& map) {
  constexpr std::uint64_t kSpare = 32;  // for other files that are opened meanwhile, and for strangers
  const std::size_t rounds = has_rounds(map) ? HostRounds::partners_of(map.node_index, map.node_count).size() : 0;
  const auto connections = rounds + static_cast<std::uint64_t>((map.is_coordinator() ? map.size : 1) +
                                                               (map.is_leader() ? map.local_size + map.node_count : 1));
  const auto allowed = allow_open_files(count_open_files() + connections + kSpare);
  return allowed.ok()
             ? allowed
             : Result<void>(Error(allowed.error().code(),
                                  "rank " + std::to_string(map.rank) + " meets the others by about " +
                                      std::to_string(connections) + " connections: " + allowed.error().message() +
                                      "; raise nofile in /etc/security/limits.conf on its host"));
}

}  // namespace

Mesh::Mesh(RankMap map)
    : map_(std::move(map)),
      control_(static_cast<std::size_t>(map_.size)),
      data_(static_cast<std::size_t>(map_.node_count)),
      data_counts_(data_.size()),
      control_filters_(control_.size()),
      data_seals_(data_.size()) {}

Mesh::~Mesh() = default;

Result<std::unique_ptr<Mesh>> Mesh::join(RankMap map, Store& store, const MeshOptions& options, Log& log,
                                         Deadline deadline) {
  HVD_TRY(check_map(map));
  if (map.size == 1) {
    map.node_of_rank = {0};
    std::unique_ptr<Mesh> mesh(new Mesh(std::move(map)));
    mesh->word_ = options.word;
    return mesh;
  }
  auto mesh = meet(std::move(map), store, options, log, deadline);
  if (!mesh.ok()) {
    if (const auto notice = await_notice(store, deadline)) {
      return Error(Code::kLostPeer, notice->cause);
    }
  }
  return mesh;
}

Result<std::unique_ptr<Mesh>> Mesh::meet(RankMap map, Store& store, const MeshOptions& options, Log& log,
                                         Deadline deadline) {
  HVD_TRY(allow_files(map));
  Listeners listeners;
  HVD_TRY_ASSIGN(const MeshPeer self, open_listeners(map, options, listeners));
  HVD_TRY_ASSIGN(const std::vector<MeshPeer> peers, publish(self, store, deadline));
  HVD_TRY_ASSIGN(map.node_of_rank, agree_on_nodes(map, peers));
  std::unique_ptr<Mesh> mesh(new Mesh(map));
  mesh->word_ = peers.front().word;
  mesh->congestion_ = options.congestion;
  mesh->in_job_ = options.in_job;
  if (map.is_leader() && map.local_size > 1) {
    HVD_TRY_ASSIGN(mesh->shm_, ShmSegment::create(map.local_size, options.shm_slot_bytes));
  }
  Meeting meeting(map.rank, store, log, deadline, {options.congestion, options.is_sealed, options.in_job.ranks});
  for (const Fd* listener : {&listeners.tcp, &listeners.unix_socket}) {
    if (listener->is_open()) {
      meeting.add_listener(listener->get(), listener == &listeners.tcp);
    }
  }
  HVD_TRY(invite(meeting, map, peers, options.has_control));
  HVD_TRY_ASSIGN(std::vector<Meeting::Met> all_met, meeting.run());
  std::vector<std::unique_ptr<HostLink>> round_links(static_cast<std::size_t>(map.node_count));
  for (Meeting::Met& met : all_met) {
    HVD_TRY(mesh->adopt(std::move(met), round_links, store, deadline));
  }
  // No rank starts to work or stops listening before all connections of all ranks are up.
  HVD_TRY(store.exchange(kJoinedKey, "", deadline));
  if (has_rounds(map)) {
    mesh->rounds_ =
        std::make_shared<HostRounds>(std::move(round_links), map.node_index, looks_beside(mesh->shm_.get()));
  }
  return mesh;
}

Result<void> Mesh::stay_out(SubsetStore& store, Deadline deadline) {
  HVD_TRY(store.stay_out(kPeersKey, deadline));
  return store.stay_out(kJoinedKey, deadline);
}

HostLink::Ends Mesh::ends_of(int node) const {
  const int leader = leader_of(map_, node);
  const auto in_job = [](const std::vector<int>& numbers, int rank, int own) {
    return std::to_string(numbers.empty() ? own : numbers[static_cast<std::size_t>(rank)]);
  };
  return {"node " + in_job(in_job_.nodes, leader, node) + " (rank " + in_job(in_job_.ranks, leader, leader) + ")",
          "rank " + in_job(in_job_.ranks, map_.rank, map_.rank)};
}

Result<void> Mesh::adopt(Meeting::Met met, std::vector<std::unique_ptr<HostLink>>& round_links, Store& store,
                         Deadline deadline) {
  const auto other = static_cast<std::size_t>(met.claim.from == map_.rank ? met.claim.to : met.claim.from);
  const auto node = static_cast<std::size_t>(map_.node_of_rank[other]);
  HVD_TRY(tune(met.fd, met.claim.role, congestion_));
  switch (met.claim.role) {
    case LinkRole::kControl:
      control_filters_[other] = met.keys ? make_record_filter(*met.keys) : nullptr;
      control_[other] = std::move(met.fd);
      break;
    case LinkRole::kData:
      data_seals_[node] = met.keys ? std::make_unique<SealedStream>(*met.keys) : nullptr;
      data_[node] = std::move(met.fd);
      break;
    case LinkRole::kRounds:
      round_links[node] =
          std::make_unique<HostLink>(std::move(met.fd), met.keys ? std::make_unique<SealedStream>(*met.keys) : nullptr,
                                     ends_of(static_cast<int>(node)));
      break;
    case LinkRole::kSegment:
      if (map_.is_leader()) {
        HVD_TRY(ShmSegment::send_fd(met.fd.get(), shm_->memory_fd()));
      } else {
        HVD_TRY_ASSIGN(shm_, receive_segment(met.fd.get(), map_, store, deadline));
      }
      break;
    case LinkRole::kAgent:
    case LinkRole::kFiles:
      return Error(Code::kInternal, "an agent's connection among those of ranks");
  }
  return {};
}

}  // namespace hvd
