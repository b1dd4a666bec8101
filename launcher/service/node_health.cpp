#include "launcher/service/node_health.h"

#include <algorithm>
#include <utility>

namespace hvd::launch {

NodeHealth after_failure(NodeHealth health, std::string why, std::int64_t now_ms) {
  constexpr int kMostDoublings = 6;  // a minute becomes more than an hour
  const int doublings = std::clamp(health.failures, 0, kMostDoublings);
  health.unusable_until_ms = now_ms + std::min(kFirstUnusableMs << doublings, kLongestUnusableMs);
  health.failures = doublings + 1;
  health.why = std::move(why);
  return health;
}

bool is_job_at_fault(const std::vector<AvoidedNode>& avoided, const Unreached& unreached) {
  const auto have_all = [&unreached](Code code) {
    return std::all_of(unreached.hosts.begin(), unreached.hosts.end(),
                       [code](const UnreachedHost& host) { return host.code == code; });
  };
  const bool was_refused =
      std::any_of(avoided.begin(), avoided.end(), [](const AvoidedNode& node) { return node.was_refused; });
  const auto has_served_others = [&avoided](const UnreachedHost& host) {
    return std::any_of(avoided.begin(), avoided.end(),
                       [&host](const AvoidedNode& node) { return node.name == host.name && node.health.was_reached; });
  };
  return !unreached.has_reached_one && (have_all(Code::kInvalid) || (have_all(Code::kAuth) && was_refused) ||
                                        std::all_of(unreached.hosts.begin(), unreached.hosts.end(), has_served_others));
}

// Older programs leave this table alone.
const char* AvoidedNodes::table() {
  return "CREATE TABLE IF NOT EXISTS avoided_node(job INTEGER NOT NULL REFERENCES job(id) ON DELETE CASCADE,"
         " name TEXT NOT NULL, was_reached INTEGER NOT NULL, failures INTEGER NOT NULL,"
         " unusable_until_ms INTEGER NOT NULL, why TEXT NOT NULL, was_refused INTEGER NOT NULL,"
         " PRIMARY KEY(job, name));";
}

Result<std::vector<AvoidedNode>> AvoidedNodes::of(std::int64_t job) {
  HVD_TRY_ASSIGN(const auto rows,
                 database_.query("SELECT name, was_reached, failures, unusable_until_ms, why, was_refused"
                                 " FROM avoided_node WHERE job = ? ORDER BY name",
                                 {job}));
  std::vector<AvoidedNode> nodes;
  for (const SqlRow& row : rows) {
    nodes.push_back({row.text(0),
                     {row.integer(1) != 0, static_cast<int>(row.integer(2)), row.integer(3), row.text(4)},
                     row.integer(5) != 0});
  }
  return nodes;
}

Result<std::map<std::int64_t, std::vector<std::string>>> AvoidedNodes::now(std::int64_t now_ms) {
  HVD_TRY_ASSIGN(const auto rows, database_.query("SELECT job, name, unusable_until_ms FROM avoided_node"));
  std::map<std::int64_t, std::vector<std::string>> nodes;
  for (const SqlRow& row : rows) {
    if (is_unusable({false, 0, row.integer(2), ""}, now_ms)) {
      nodes[row.integer(0)].push_back(row.text(1));
    }
  }
  return nodes;
}

Result<std::int64_t> AvoidedNodes::next_ms(std::int64_t job, std::int64_t now_ms) {
  HVD_TRY_ASSIGN(const std::vector<AvoidedNode> nodes, of(job));
  std::int64_t next = 0;
  for (const AvoidedNode& node : nodes) {
    const std::int64_t until = node.health.unusable_until_ms;
    next = is_unusable(node.health, now_ms) && (next == 0 || until < next) ? until : next;
  }
  return next;
}

Result<void> AvoidedNodes::add(std::int64_t job, const UnreachedHost& node, std::int64_t now_ms) {
  HVD_TRY_ASSIGN(const std::vector<AvoidedNode> known, of(job));
  const auto before =
      std::find_if(known.begin(), known.end(), [&node](const AvoidedNode& other) { return other.name == node.name; });
  const NodeHealth health = after_failure(before == known.end() ? NodeHealth() : before->health, node.why, now_ms);
  HVD_TRY(database_.change(
      "INSERT OR REPLACE INTO avoided_node(job, name, was_reached, failures, unusable_until_ms, why, was_refused)"
      " VALUES(?, ?, ?, ?, ?, ?, ?)",
      {job, node.name, std::int64_t{0}, sql_number(health.failures), health.unusable_until_ms, health.why,
       static_cast<std::int64_t>(node.code == Code::kAuth)}));
  return {};
}

Result<void> AvoidedNodes::note_reached(const std::string& node, std::int64_t by) {
  HVD_TRY(database_.change("UPDATE avoided_node SET was_reached = 1 WHERE name = ?", {node}));
  HVD_TRY(database_.change("DELETE FROM avoided_node WHERE name = ? AND job = ?", {node, by}));
  return {};
}

Result<void> AvoidedNodes::forget(std::int64_t job) {
  HVD_TRY(database_.change("DELETE FROM avoided_node WHERE job = ?", {job}));
  return {};
}

}  // namespace hvd::launch
