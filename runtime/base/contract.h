// The rank environment: the one thing on which launcher and runtime agree. Names only; the values are documented here.
//
// hvdrun sets all of them for every rank. The runtime reads the HVD_ ones (in runtime/abi/config.cpp, nowhere else).
#pragma once

namespace hvd::contract {

// Identity, decimal numbers.
inline constexpr const char* kRank = "HVD_RANK";
inline constexpr const char* kSize = "HVD_SIZE";
inline constexpr const char* kLocalRank = "HVD_LOCAL_RANK";
inline constexpr const char* kLocalSize = "HVD_LOCAL_SIZE";
inline constexpr const char* kCrossRank = "HVD_CROSS_RANK";
inline constexpr const char* kCrossSize = "HVD_CROSS_SIZE";
inline constexpr const char* kNodeIndex = "HVD_NODE_INDEX";
inline constexpr const char* kNodeCount = "HVD_NODE_COUNT";
inline constexpr const char* kJobId = "HVD_JOB_ID";

// Path of the unix socket at which this node's agent answers (rendezvous/store_wire.h).
inline constexpr const char* kAgentSocket = "HVD_AGENT_SOCKET";
// Proves to the agent that a process belongs to this job; 32 hex digits. It opens nothing but that socket, which only
// this user can reach: the job secret itself is never in an environment.
inline constexpr const char* kAgentToken = "HVD_AGENT_TOKEN";
// Numeric address at which other nodes reach this one; what the runtime listens on when there are several nodes.
inline constexpr const char* kNodeAddress = "HVD_NODE_ADDRESS";

// Tuning that the runtime honours.
inline constexpr const char* kFusionThreshold = "HOROVOD_FUSION_THRESHOLD";    // bytes; 0: no fusion
inline constexpr const char* kCycleTime = "HOROVOD_CYCLE_TIME";                // ms; upper bound of the batching window
inline constexpr const char* kStartTimeout = "HOROVOD_START_TIMEOUT";          // s; limit for joining
inline constexpr const char* kStallOff = "HOROVOD_STALL_CHECK_DISABLE";        // 1: do not watch for stalls
inline constexpr const char* kStallWarn = "HOROVOD_STALL_CHECK_TIME_SECONDS";  // until a stall is told; 0: never
inline constexpr const char* kStallEnd = "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS";  // until it ends the job; 0: never
inline constexpr const char* kTimeline = "HOROVOD_TIMELINE";                     // rank 0's file; DYNAMIC: none yet
inline constexpr const char* kTimelineCycles = "HOROVOD_TIMELINE_MARK_CYCLES";   // 1: with the coordinator's decisions
inline constexpr const char* kLogLevel = "HOROVOD_LOG_LEVEL";                    // TRACE ... FATAL

}  // namespace hvd::contract
