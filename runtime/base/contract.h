// The rank environment is the contract between launcher and runtime: the names of the variables, with their values in
// the comments.
//
// hvdrun sets the identity, the agent's socket and the link variables for its ranks. HVD_TUNING, the paths of libraries
// and HOROVOD_'s settings come from the user, and the sizes near the end come from mpirun, srun or torchrun. Of the C++
// runtime runtime/abi/config.cpp alone reads variables; Python modules read some of them too
// (runtime/docs/variables.md).
#pragma once

namespace hvd::contract {

// The rank's identity, as decimal numbers.
inline constexpr const char* kRank = "HVD_RANK";
inline constexpr const char* kSize = "HVD_SIZE";
inline constexpr const char* kLocalRank = "HVD_LOCAL_RANK";
inline constexpr const char* kLocalSize = "HVD_LOCAL_SIZE";
inline constexpr const char* kCrossRank = "HVD_CROSS_RANK";
inline constexpr const char* kCrossSize = "HVD_CROSS_SIZE";
inline constexpr const char* kNodeIndex = "HVD_NODE_INDEX";
inline constexpr const char* kNodeCount = "HVD_NODE_COUNT";
inline constexpr const char* kJobId = "HVD_JOB_ID";

// An agent keeps an anonymous file (memfd) of this name open, with the number of the job's ranks behind it; 0: they are
// not told their place. A process whose environment was replaced sees by it that it is one of several.
inline constexpr const char* kRanksMark = "hvd-ranks-";

// The path of the unix socket at which this node's agent answers (rendezvous/store_wire.h).
inline constexpr const char* kAgentSocket = "HVD_AGENT_SOCKET";
// The token that proves to the agent that a process belongs to this job; 32 hex digits. It opens only that socket,
// which only this user can reach. The job secret itself is never in an environment.
inline constexpr const char* kAgentToken = "HVD_AGENT_TOKEN";
// The numeric address at which other nodes reach this one; the runtime listens on it if there are several nodes.
inline constexpr const char* kNodeAddress = "HVD_NODE_ADDRESS";
// TCP's congestion control between nodes, instead of the one that would be chosen (io/socket.h).
inline constexpr const char* kTcpCongestion = "HVD_TCP_CONGESTION";
// encrypt: what goes between nodes is encrypted and authenticated; plain, or nothing: it is not. The same on all ranks.
inline constexpr const char* kLinkSecurity = "HVD_LINK_SECURITY";

// Set in an elastic job only: how many restarts of failed ranks are allowed, for all ranks together. (Python reads it,
// and also HOROVOD_ELASTIC and HOROVOD_ELASTIC_TIMEOUT, the seconds that the ranks have to meet again.)
inline constexpr const char* kRestartLimit = "HVD_RESTART_LIMIT";
// How often all ranks were started again, as torchrun counts it.
inline constexpr const char* kRestartCount = "TORCHELASTIC_RESTART_COUNT";
// 1 for the ranks of a host that joined an elastic job while it ran. (Python reads it.)
inline constexpr const char* kJoining = "HVD_JOINING";

// On rank 0: the file that hvdrun bench --tune wrote, or its content if the value begins with '{'.
inline constexpr const char* kTuning = "HVD_TUNING";
// Tuning variables of Horovod that the runtime honours.
inline constexpr const char* kFusionThreshold = "HOROVOD_FUSION_THRESHOLD";    // bytes; 0: no fusion
inline constexpr const char* kCacheCapacity = "HOROVOD_CACHE_CAPACITY";        // tensors known by one bit; 0: none
inline constexpr const char* kCycleTime = "HOROVOD_CYCLE_TIME";                // ms; upper bound of the batching window
inline constexpr const char* kNoGroupFusion = "HOROVOD_DISABLE_GROUP_FUSION";  // 1: groups are not fused with others
inline constexpr const char* kThreadAffinity =
    "HOROVOD_THREAD_AFFINITY";                                       // cores of the engine's thread, by local rank
inline constexpr const char* kAutotune = "HOROVOD_AUTOTUNE";         // 1: rank 0 searches for better settings
inline constexpr const char* kAutotuneLog = "HOROVOD_AUTOTUNE_LOG";  // rank 0's file of the settings it tried
inline constexpr const char* kAutotuneWarmup = "HOROVOD_AUTOTUNE_WARMUP_SAMPLES";
inline constexpr const char* kAutotuneSteps = "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE";
inline constexpr const char* kAutotuneSamples = "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES";
inline constexpr const char* kAutotuneNoise = "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE";  // 0 to 1
inline constexpr const char* kStartTimeout = "HOROVOD_START_TIMEOUT";                     // s; limit for joining
inline constexpr const char* kStallOff = "HOROVOD_STALL_CHECK_DISABLE";                   // 1: do not watch for stalls
inline constexpr const char* kStallWarn = "HOROVOD_STALL_CHECK_TIME_SECONDS";  // s until a stall is reported; 0: never
inline constexpr const char* kStallEnd = "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS";  // s until it ends the job; 0: never
inline constexpr const char* kTimeline = "HOROVOD_TIMELINE";                     // rank 0's file; DYNAMIC: off at first
inline constexpr const char* kTimelineCycles = "HOROVOD_TIMELINE_MARK_CYCLES";   // 1: with the coordinator's decisions
inline constexpr const char* kCpuOperations = "HOROVOD_CPU_OPERATIONS";  // mpi: data goes over MPI; else over libhvd
inline constexpr const char* kMpiThreadsOff = "HOROVOD_MPI_THREADS_DISABLE";  // 1: not MPI_THREAD_MULTIPLE
inline constexpr const char* kMpiLibrary = "HVD_MPI_LIBRARY";                 // the file of libmpi, if it is not found
inline constexpr const char* kNcclLibrary = "HVD_NCCL_LIBRARY";               // the file of libnccl, likewise
// What moves data between GPUs, for all operations or for one kind: nccl, or mpi or none (through the host's memory).
inline constexpr const char* kGpuOperations = "HOROVOD_GPU_OPERATIONS";
inline constexpr const char* kGpuAllreduce = "HOROVOD_GPU_ALLREDUCE";
inline constexpr const char* kGpuAllgather = "HOROVOD_GPU_ALLGATHER";
inline constexpr const char* kGpuBroadcast = "HOROVOD_GPU_BROADCAST";
inline constexpr const char* kGpuAlltoall = "HOROVOD_GPU_ALLTOALL";
inline constexpr const char* kGpuReducescatter = "HOROVOD_GPU_REDUCESCATTER";
inline constexpr const char* kEarlyCompletion = "HOROVOD_ENABLE_ASYNC_COMPLETION";  // 1: GPU operations end on streams
inline constexpr const char* kLogLevel = "HOROVOD_LOG_LEVEL";                       // TRACE ... FATAL

// From these variables a rank knows that mpirun or srun started it, and how many ranks there are: Open MPI's, MPICH's,
// and Slurm's for a step. A rank of hvdrun has the first one too, with the numbers of its own job.
inline constexpr const char* kOpenMpiSize = "OMPI_COMM_WORLD_SIZE";
inline constexpr const char* kPmiSize = "PMI_SIZE";
inline constexpr const char* kPmixRank = "PMIX_RANK";  // no size
inline constexpr const char* kSlurmStepSize = "SLURM_STEP_NUM_TASKS";
// torchrun's variables, which hvdrun removes or sets again for its own ranks.
inline constexpr const char* kTorchrunId = "TORCHELASTIC_RUN_ID";
inline constexpr const char* kWorldSize = "WORLD_SIZE";

}  // namespace hvd::contract
