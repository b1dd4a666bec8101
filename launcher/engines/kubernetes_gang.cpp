#include "launcher/engines/kubernetes_gang.h"

#include <algorithm>
#include <set>
#include <utility>

#include "launcher/wire/engine_call.h"
#include "runtime/base/text.h"

namespace hvd::launch {

Result<std::unique_ptr<Gang>> KubernetesGang::create(EventLoop& loop, const JobSpec& job, const Placement& placement,
                                                     Log& log, std::function<void(const std::string&)> say) {
  std::unique_ptr<KubernetesGang> gang(new KubernetesGang(loop, job, placement, std::move(say)));
  HVD_TRY_ASSIGN(const JobSecret secret, read_call_secret(job.key_file));
  HVD_TRY_ASSIGN(KeyPair pair, KeyPair::make());
  DialBackOptions options(secret, std::move(pair));
  options.port = job.agent_port;
  // Since Kubernetes 1.28 a pod that is short of memory is killed as a whole, so that no agent is left to say so.
  options.lost_advice = "; kubectl describe pod says whether it was OOMKilled";
  HVD_TRY(gang->listen(options, log));
  gang->tell("waiting at port " + std::to_string(job.agent_port) + " for the agents of " +
             counted(placement.nodes.size(), "pod") +
             (job.slots_are_gpus ? "; a rank for each GPU, and one where there is none; -np says how many" : ""));
  return std::unique_ptr<Gang>(std::move(gang));
}

KubernetesGang::KubernetesGang(EventLoop& loop, const JobSpec& job, const Placement& placement,
                               std::function<void(const std::string&)> say)
    : Gang(loop, job, static_cast<int>(placement.nodes.size()),
           Words{"Kubernetes", "pod",
                 "do they run (kubectl get pods), and do they call this pod's name with the same key?"},
           std::move(say)),
      wanted_(placement),
      slots_are_gpus_(job.slots_are_gpus) {}

Result<CalledPlacement> KubernetesGang::place_ranks(const std::vector<ReadyMessage>& facts) const {
  return place_on_pods(wanted_, slots_are_gpus_, facts);
}

Result<std::string> make_call_secret() {
  JobSecret secret{};
  HVD_TRY(fill_random(secret));
  return hex(secret);
}

HostList unnamed_pods(int count) {
  HostList pods;
  for (int index = 0; index < count; ++index) {
    HostSpec pod;
    pod.name = "pod-" + std::to_string(index);
    pods.push_back(std::move(pod));
  }
  return pods;
}

Result<CalledPlacement> place_on_pods(const Placement& wanted, bool slots_are_gpus,
                                      const std::vector<ReadyMessage>& facts) {
  CalledPlacement called;
  HostList hosts;
  std::set<std::string> names;
  for (const NodePlan& node : wanted.nodes) {
    const ReadyMessage& pod = facts[static_cast<std::size_t>(node.index)];
    if (!names.insert(pod.host_name).second) {
      return Error(Code::kInvalid,
                   "two pods call themselves " + pod.host_name +
                       "; pods that share the network of their machine (hostNetwork) cannot be told apart");
    }
    HostSpec host = node.host;
    host.name = pod.host_name;
    host.slots = slots_are_gpus ? std::max(1, static_cast<int>(pod.gpus.size())) : node.local_size();
    called.partition_of_rank.insert(called.partition_of_rank.end(), static_cast<std::size_t>(host.slots), node.index);
    hosts.push_back(std::move(host));
  }
  HVD_TRY_ASSIGN(called.placement, place(hosts, 0));
  return called;
}

}  // namespace hvd::launch
