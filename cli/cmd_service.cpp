#include "cli/commands.h"
#include "cli/service_commands.h"

namespace hvd::cli {

Result<int> serve(const ServiceOptions& options) {
  if (options.verb == Verb::kSupervise) {
    return supervise(options);
  }
  HVD_TRY_ASSIGN(ServicePlace place, ServicePlace::open());
  switch (options.verb) {
    case Verb::kClusterAdd:
      return add_cluster(place, options);
    case Verb::kClusterShow:
      return show_cluster(place, options);
    case Verb::kClusterList:
      return list_clusters(place, options);
    case Verb::kClusterDrain:
    case Verb::kClusterResume:
      return drain_cluster(place, options);
    case Verb::kClusterRemove:
      return remove_cluster(place, options);
    case Verb::kPs:
      return list_jobs(place, options);
    case Verb::kShow:
      return show_job(place, options);
    case Verb::kWait:
      return wait_for_jobs(place, options);
    case Verb::kFiles:
      return list_files(place, options);
    case Verb::kLogs:
      return show_log(place, options);
    case Verb::kStop:
      return stop_job(place, options);
    case Verb::kRm:
      return remove_job(place, options);
    case Verb::kNodes:
      return list_nodes(place, options);
    case Verb::kExec:
      return run_on_node(place, options);
    case Verb::kAttach:
      return attach_to_job(place, options);
    case Verb::kReport:
      return options.serves ? serve_reports(place, options) : report_job(place, options);
    case Verb::kRecover:  // open() has done it
    case Verb::kSupervise:
      break;
  }
  return 0;
}

}  // namespace hvd::cli
