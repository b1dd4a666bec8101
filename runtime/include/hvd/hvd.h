/* hvd.h - the C interface of libhvd, the collectives runtime. C99, no framework type, no C++.
 *
 * Rules, valid for every function below:
 *  1. A NULL context means the process's default context, the one hvd_init(NULL) makes. Explicit contexts
 *     (hvd_create) let one process hold several ranks, which is how the tests run N ranks as threads.
 *  2. A function returns an hvd_status (0 is success, the numbers never change) unless its comment says otherwise.
 *     The text of this thread's last failure is hvd_last_error(); it names who, what, and what to try.
 *  3. Structs start with their own size in bytes and a version, so that a caller compiled against an older
 *     header keeps working. Fill them with the HVD_*_INIT macros.
 *  4. Memory given to hvd_enqueue (input, output) belongs to the caller and must stay valid and untouched until
 * hvd_wait of that handle has returned (or hvd_poll has said done). Everything else of an hvd_op (the struct itself,
 * shape, name, splits) is copied before the call returns, by every function that takes one. Memory handed out by
 *     hvd_result belongs to the runtime until hvd_release of the handle.
 *  5. Any thread may call any function. Nothing here aborts the process or throws.
 *     The memory may be a GPU's (hvd_op.device, since version 7): then the operation waits on the GPU, and not the
 * host, for what the caller has put on hvd_op.stream before hvd_enqueue. What hvd_result hands out is a GPU's too.
 *  6. Every wait ends: with the result, or with an error that names the rank or link that failed.
 */
#ifndef HVD_HVD_H_
#define HVD_HVD_H_

#include <stdint.h>

#if defined(__GNUC__)
#define HVD_API __attribute__((visibility("default")))
#else
#define HVD_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define HVD_ABI_VERSION 10 /* grows with every addition; callers of an older header keep working */
#define HVD_MAX_DIMS 16
#define HVD_MAX_GROUP 4096

typedef struct hvd_ctx hvd_ctx;

typedef int32_t hvd_status;
#define HVD_OK 0
#define HVD_INVALID 1     /* an argument of this call is wrong; nothing was started */
#define HVD_NOT_FOUND 2   /* no such handle, process set, ... */
#define HVD_UNREACHABLE 3 /* a peer's address does not answer */
#define HVD_AUTH 4        /* a peer could not prove that it knows the job secret */
#define HVD_TIMEOUT 5     /* a deadline passed */
#define HVD_PROTOCOL 6    /* a peer sent what it must not */
#define HVD_LOST_PEER 7   /* a rank, node or link of this job is gone; the text names it */
#define HVD_CANCELLED 8   /* the context was shut down while the work was pending */
#define HVD_RESOURCE 9    /* out of memory, descriptors, disk, ... */
#define HVD_SYSTEM 10     /* a system call failed */
#define HVD_INTERNAL 11   /* a defect of ours */
#define HVD_NOT_INITIALIZED 12
#define HVD_MISMATCH 13 /* ranks disagree (shape, dtype, op, ...) or ask for what cannot be; raised on every rank */

/* Kinds of operation.
 *  reducescatter: the reduction, of which each rank gets its rows: an even share of dimension 0; what remains makes the
 *    lowest ranks' shares one row longer.
 *  alltoall: each rank sends some of its rows to each rank; dimension 0 may differ between ranks.
 *  join: this rank has no more data. Until all ranks have joined it brings zeros to the others' allreduces (which
 *    average over all ranks as ever) and comes to their barriers; other operations fail on all ranks meanwhile. Its
 *    result is one int32, the rank that joined last. It has no name, and nothing else can be started on this rank
 *    while it is pending.
 */
#define HVD_ALLREDUCE 0
#define HVD_ALLGATHER 1
#define HVD_BROADCAST 2
#define HVD_BARRIER 3
#define HVD_REDUCESCATTER 4
#define HVD_ALLTOALL 5
#define HVD_JOIN 6

/* Reduction operators (Horovod's numbers). */
#define HVD_AVERAGE 0
#define HVD_SUM 1
#define HVD_ADASUM 2 /* since version 5: see hvd_op.reduce_op */
#define HVD_MIN 3
#define HVD_MAX 4
#define HVD_PRODUCT 5

/* Element types. */
#define HVD_UINT8 0
#define HVD_INT8 1
#define HVD_UINT16 2
#define HVD_INT16 3
#define HVD_INT32 4
#define HVD_INT64 5
#define HVD_FLOAT16 6
#define HVD_BFLOAT16 7
#define HVD_FLOAT32 8
#define HVD_FLOAT64 9
#define HVD_BOOL 10

#define HVD_DEVICE_CPU (-1)

/* How to join a job, for hvd_create and hvd_init. With NULL (or with rank < 0) everything is taken from the rank
 * environment that hvdrun sets (runtime/base/contract.h). Without that, ranks that mpirun or srun has started find each
 * other by MPI, which is loaded then, and started if the program has not; any other process is a job of size 1. */
typedef struct hvd_options {
  uint32_t size;
  uint32_t version;
  double timeout_s; /* limit for joining; <= 0: the environment's, or 60 */
  /* since version 2: a job of some of the ranks that mpirun has started. At most one of the two */
  const int32_t* ranks; /* which of MPI_COMM_WORLD, numbered in this order; they all name the same */
  int32_t rank_count;   /* 0: all */
  int32_t has_mpi_comm; /* 1: the ranks of mpi_comm, in its order */
  int32_t mpi_comm;     /* a communicator as MPI_Comm_c2f gives it; it is copied */
  int32_t reserved;
} hvd_options;
#define HVD_OPTIONS_INIT {sizeof(hvd_options), 2, 0.0, 0, 0, 0, 0, 0}

/* One collective operation. Every rank of the process set enqueues one of the same name; it starts when all have. */
typedef struct hvd_op {
  uint32_t size;
  uint32_t version;
  int32_t kind;        /* HVD_ALLREDUCE ... HVD_JOIN */
  int32_t dtype;       /* HVD_FLOAT32 ...; not used by a barrier or join */
  int32_t reduce_op;   /* allreduce, reducescatter: HVD_AVERAGE, HVD_SUM, HVD_MIN, HVD_MAX, HVD_PRODUCT. Allreduce of a
                          floating type also HVD_ADASUM: of two ranks' a and b, each tensor by itself,
                          (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b; of more in a binary tree, first the ranks of each
                          node, then the nodes. Any number of ranks */
  int32_t root_rank;   /* broadcast; a rank of the job, also in a process set */
  int32_t process_set; /* 0: all ranks; else the number that hvd_process_set_add gave, of which this rank is a member */
  int32_t device;      /* HVD_DEVICE_CPU; or the GPU whose memory input and output are, as CUDA numbers those that the
                          process sees: the same one in all calls of a rank. All ranks of an operation are on GPUs, or
                          none is. `splits` and `shape` are always the host's */
  int32_t ndim;        /* 0 ... HVD_MAX_DIMS; a scalar has 0 */
  int32_t reserved;
  const int64_t* shape; /* ndim extents of this rank's input, each >= 0 */
  const char* name;     /* the same on every rank; NULL: "<kind>.noname.<n>", n counting this rank's unnamed calls;
                           among all ranks, those since the last join */
  const void* input;    /* contiguous, and where elements of its type may lie */
  void* output;         /* allreduce, broadcast: as large as the input, may be the input itself; no other operation that
                           is not finished has it, nor any part. After an error what lies there means nothing.
                           allgather, reducescatter, alltoall: NULL, the runtime allocates, see hvd_result. */
  double prescale;      /* allreduce, reducescatter: the input is multiplied by it before ... */
  double postscale;     /* ... and the result by it after the reduction */
  void* stream;         /* the CUDA stream (cudaStream_t, CUstream) behind whose work the memory is ready; it is refused
                           while a CUDA graph is captured from it. NULL: the default stream, or HVD_DEVICE_CPU */
  /* since version 2 */
  const int32_t* splits; /* alltoall: how many rows go to each rank, the first ones to rank 0; together at most
                            shape[0]. NULL: an even share for each. Read before hvd_enqueue returns. */
  int32_t split_count;   /* the number of ranks, or 0 with NULL */
  /* since version 3 */
  int32_t priority; /* of what is ready on all ranks at once, the highest goes first; the lowest rank's counts, and of a
                       group the first one's */
} hvd_op;
#define HVD_OP_INIT \
  {sizeof(hvd_op), 3, 0, HVD_FLOAT32, HVD_SUM, 0, 0, HVD_DEVICE_CPU, 0, 0, 0, 0, 0, 0, 1.0, 1.0, 0, 0, 0, 0}

/* What a finished operation left behind. */
typedef struct hvd_output {
  uint32_t size;
  uint32_t version;
  void* data; /* allgather: the concatenation along dimension 0; reducescatter: this rank's rows; alltoall: the rows
                 that came, in the order of their ranks; join: one int32; else the op's output */
  int64_t size_bytes;
  int32_t ndim;
  int32_t reserved;
  int64_t shape[HVD_MAX_DIMS];
  /* since version 2 */
  const int32_t* received_splits; /* alltoall: how many rows came from each rank; else NULL */
  int32_t received_count;         /* the number of ranks, or 0 */
  int32_t reserved2;
} hvd_output;
#define HVD_OUTPUT_INIT {sizeof(hvd_output), 2, 0, 0, 0, 0, {0}, 0, 0, 0}

/* ---- the process's job ---- */

/* Joins the job. Blocks until every rank has joined or the limit has passed. Idempotent for the default context. */
HVD_API hvd_status hvd_init(const hvd_options* options);
/* Leaves the job: pending operations here complete with HVD_CANCELLED, on other ranks with HVD_LOST_PEER.
 * hvd_init may be called again afterwards. Not an error when not initialised. */
HVD_API hvd_status hvd_shutdown(void);
/* 1 or 0. */
HVD_API int32_t hvd_is_initialized(void);

/* Since version 10: tells hvdrun at once of a failure in this process, so that the first failure of a job is known
 * whichever process ends first. Waits a second at most, for no other rank. HVD_NOT_FOUND where hvdrun has not started
 * this process. */
#define HVD_FAILURE_ENDS 0    /* the program is ending, by a failure of its own; hvdrun stops the job */
#define HVD_FAILURE_FOLLOWS 1 /* it is ending because an operation failed by another rank's end */
#define HVD_FAILURE_NOTICED 2 /* something failed, and the program may go on: counts only if the process fails soon */
/* exit_code: what the process will end with, 0 to 255. what: a line that tells the failure; more than 1000 bytes are
 * cut off. */
HVD_API hvd_status hvd_tell_failure(int32_t kind, int32_t exit_code, const char* what);

/* An explicit context and its end. */
HVD_API hvd_status hvd_create(const hvd_options* options, hvd_ctx** out);
HVD_API void hvd_destroy(hvd_ctx* ctx);

/* Each returns the number, or -1 when not initialised. */
HVD_API int32_t hvd_rank(hvd_ctx* ctx);
HVD_API int32_t hvd_size(hvd_ctx* ctx);
HVD_API int32_t hvd_local_rank(hvd_ctx* ctx);
HVD_API int32_t hvd_local_size(hvd_ctx* ctx);
HVD_API int32_t hvd_cross_rank(hvd_ctx* ctx);
HVD_API int32_t hvd_cross_size(hvd_ctx* ctx);

/* ---- process sets (since version 3) ----
 * Ranks that do operations of their own, beside those of all; each has names of its own. Ranks, splits and shares of an
 * operation are then those of the set, in the order of the job's ranks. 0 is the set of all ranks. */

/* Makes the set of these ranks (any order, none twice) and its links. Every rank of the job calls it at the same place
 * of its calls, members or not, and gets the same number, which is never used again. HVD_INVALID on all ranks when
 * there is a set of the same ranks, HVD_MISMATCH when ranks name different ones. Blocks until all have called. */
HVD_API hvd_status hvd_process_set_add(hvd_ctx* ctx, const int32_t* ranks, int32_t count, int32_t* number);
/* The same (since version 9), called by the members only: the others need do nothing, and the set is there for them
 * too. HVD_INVALID for a rank that is no member. */
HVD_API hvd_status hvd_process_set_add_by_members(hvd_ctx* ctx, const int32_t* ranks, int32_t count, int32_t* number);
/* Ends the set, on every rank of the job as above. Refused (HVD_INVALID, and the set stays) for 0, and while some of
 * its operations wait for other ranks. What was started in it before and is not refused is done first. */
HVD_API hvd_status hvd_process_set_remove(hvd_ctx* ctx, int32_t number);
/* How many sets there are, and the first `capacity` of their numbers, ascending; numbers may be NULL with 0. */
HVD_API hvd_status hvd_process_numbers(hvd_ctx* ctx, int32_t* numbers, int32_t capacity, int32_t* count);
/* How many ranks the set has, and the first `capacity` of them, ascending. HVD_NOT_FOUND: no such set. */
HVD_API hvd_status hvd_process_set_ranks(hvd_ctx* ctx, int32_t number, int32_t* ranks, int32_t capacity,
                                         int32_t* count);

/* ---- buffers (since version 3) ---- */

/* Memory for tensors that are reduced again and again, as gradients are: an allreduce of all ranks (process set 0) in
 * place, on the same part of the same buffer on each rank, copies nothing within a node. Elsewhere, and otherwise, it
 * is memory like any other. Every rank of the job calls it at the same place of its calls with the same size (1 byte to
 * 1 TiB). Zeroed; begins at a page. */
HVD_API hvd_status hvd_buffer_create(hvd_ctx* ctx, int64_t size_bytes, void** data);
/* Gives it back, on every rank of the job as above; what it held is gone. A buffer that is not given back keeps its
 * memory also after hvd_shutdown, until the process ends. */
HVD_API hvd_status hvd_buffer_destroy(hvd_ctx* ctx, void* data);

/* ---- operations ---- */

/* Starts one operation and returns at once; *handle names it (> 0) until hvd_release. */
HVD_API hvd_status hvd_enqueue(hvd_ctx* ctx, const hvd_op* op, int64_t* handle);
/* hvd_enqueue and hvd_wait in one, for which no other thread has to wake up, and the shortest way for what is small.
 * *handle is 0 when nothing was started; else it is to be released, also when the operation failed. `handle` may be
 * NULL (since version 3) where the result is the caller's memory or none: then nothing is to be released. */
HVD_API hvd_status hvd_execute(hvd_ctx* ctx, const hvd_op* op, int64_t* handle);
/* Starts a group: `count` (1 ... HVD_MAX_GROUP) operations of one kind (HVD_ALLREDUCE, HVD_ALLGATHER or
 * HVD_REDUCESCATTER), operator and scales, the same on every rank and in the same order. None is done before all ranks
 * have asked for all of them, and they travel together however large they are; when one cannot be done, none is.
 * handles[i] names ops[i]. */
HVD_API hvd_status hvd_enqueue_group(hvd_ctx* ctx, const hvd_op* const* ops, int32_t count, int64_t* handles);
/* Since version 6: hvd_enqueue of `count` (0 ... HVD_MAX_GROUP) operations that have nothing to do with each other, in
 * one call; handles[i] names ops[i]. At the first that is refused it stops: its handle and those behind it are 0. With
 * `waits` HVD_WAITS_NEXT the caller calls hvd_finish (or hvd_wait) next, and no other thread wakes up for them before;
 * with HVD_WAITS_SOON (since version 8) it does within a moment, as far as it knows, and a thread wakes up for them
 * only when it has not within 5 ms or so. */
#define HVD_GOES_ON 0
#define HVD_WAITS_NEXT 1
#define HVD_WAITS_SOON 2
HVD_API hvd_status hvd_enqueue_many(hvd_ctx* ctx, const hvd_op* const* ops, int32_t count, int32_t waits,
                                    int64_t* handles);
/* *done = 1 when hvd_wait would not block. */
HVD_API hvd_status hvd_poll(hvd_ctx* ctx, int64_t handle, int32_t* done);
/* Blocks until the operation has finished; its status is the operation's. May be called more than once. With
 * HOROVOD_ENABLE_ASYNC_COMPLETION=1 an operation on a GPU has finished for the host when it is launched there: what the
 * caller puts on hvd_op.stream after hvd_wait (or hvd_finish, hvd_execute) runs behind it. */
HVD_API hvd_status hvd_wait(hvd_ctx* ctx, int64_t handle);
/* Since version 8: has `callback` called once with `arg` when the operation has ended, with what hvd_wait will return
 * and, of a failure, the text (valid for the call; else NULL): on a thread of the runtime, on one that waits for
 * another operation, or on the caller's, when it had ended already. The callback has returned before any hvd_wait for
 * the operation does. Until then nothing else of the job goes on: it notes, or wakes up a thread of the program, and
 * returns. The library refuses to be called from it (HVD_INVALID). An operation has one callback at most. With
 * hvd_enqueue_many's `waits` it is called while somebody waits. */
typedef void (*hvd_callback)(void* arg, hvd_status status, const char* error);
HVD_API hvd_status hvd_on_done(hvd_ctx* ctx, int64_t handle, hvd_callback callback, void* arg);
/* Since version 10: waits until all of `count` operations have ended, but not longer than so many microseconds (a
 * millisecond more where the thread slept), and does what is to be done for them meanwhile, as hvd_wait does; with 0 it
 * only looks. *done = 1 when all have ended: then hvd_wait and hvd_finish, which tell how, do not block. What has not
 * ended goes on by itself. */
HVD_API hvd_status hvd_wait_some(hvd_ctx* ctx, const int64_t* handles, int32_t count, int64_t microseconds,
                                 int32_t* done);
/* Since version 10: hvd_on_done for `count` operations together, none of which has a callback. It is called once, when
 * all have ended: with the status and text of the first that failed, else HVD_OK and NULL; on the caller's thread,
 * before this returns, when all had ended by then. After an error it is never called. */
HVD_API hvd_status hvd_on_all_done(hvd_ctx* ctx, const int64_t* handles, int32_t count, hvd_callback callback,
                                   void* arg);
/* What the finished operation left; valid until hvd_release. out->size and out->version must be set. */
HVD_API hvd_status hvd_result(hvd_ctx* ctx, int64_t handle, hvd_output* out);
/* Since version 7: copies what the finished operation left and the runtime has allocated (of an allgather, alltoall,
 * reducescatter) to the caller's memory, which has its size. From a GPU: to its memory or the host's, on `stream`,
 * behind the operation and what is on the stream by now; the host does not wait for it, unless `to` is pageable.
 * hvd_release may follow at once. From the host: at once, and `stream` is NULL. */
HVD_API hvd_status hvd_fetch(hvd_ctx* ctx, int64_t handle, void* to, int64_t size_bytes, void* stream);
/* Forgets a handle. One that is still pending is waited for first. */
HVD_API hvd_status hvd_release(hvd_ctx* ctx, int64_t handle);
/* Since version 4: hvd_wait and hvd_release of `count` handles in one call, for operations that leave nothing to fetch.
 * All are waited for, also when one fails; the status and text are the first failure's. Each handle becomes 0 when it
 * is forgotten, and those that are 0 already are passed over. */
HVD_API hvd_status hvd_finish(hvd_ctx* ctx, int64_t* handles, int32_t count);

/* ---- operations in the order in which they end (since version 10) ----
 * For threads of a program that do something with each result, whichever comes next; several may serve one queue. */

typedef struct hvd_queue hvd_queue;
HVD_API hvd_status hvd_queue_create(hvd_queue** out);
/* Nobody may be in a call with it. What was put and has not ended yet is not harmed. */
HVD_API void hvd_queue_destroy(hvd_queue* queue);
/* Has hvd_queue_next give the handle out once, when its operation has ended, whether it failed or not: also when it had
 * ended already, and when the job ends. It is the operation's callback, of which it has one at most (hvd_on_done).
 * Handle 0 is no operation, and comes out at once: it wakes somebody up. */
HVD_API hvd_status hvd_queue_put(hvd_queue* queue, hvd_ctx* ctx, int64_t handle);
/* Blocks until there is one; HVD_TIMEOUT after so many seconds. hvd_wait for it takes no time then. */
HVD_API hvd_status hvd_queue_next(hvd_queue* queue, double timeout_s, int64_t* handle);

/* ---- what was done (since version 4) ---- */

/* Of one process set, on this rank, since it was made. Times of operations overlap, so that their sums may be more than
 * the time that has passed. */
typedef struct hvd_counters {
  uint32_t size;
  uint32_t version;
  uint64_t operations; /* finished without error */
  uint64_t failures;   /* finished with one of their own (a mismatch, say), without the job's end */
  uint64_t steps;      /* that the operations took: those that are fused go together in one */
  uint64_t bytes;      /* of the operations' inputs */
  double negotiate_s; /* seconds from hvd_enqueue until this rank knew that all are ready, summed over operations. Small
                         ones that a node's ranks do at once, without a decision of rank 0, count no time */
  double wait_s;      /* from then until begun, summed over operations */
  double move_s;      /* of the steps, from begin to end */
  uint64_t sleeps;    /* of the engine, whatever the set: how often a thread of it, or one that waits for an operation,
                         went to sleep until something woke it */
  /* since version 2 */
  uint64_t requests; /* operations that this rank asked rank 0 for by message: the first time, and when they change */
  uint64_t known;    /* by one bit, since all ranks know them from an earlier time (HOROVOD_CACHE_CAPACITY) */
  uint64_t messages; /* of the engine, whatever the set: sent to other ranks to agree with them on what to do */
  uint64_t message_bytes;
} hvd_counters;
#define HVD_COUNTERS_INIT {sizeof(hvd_counters), 2, 0, 0, 0, 0, 0.0, 0.0, 0.0, 0, 0, 0, 0, 0}
/* HVD_NOT_FOUND: this rank is not a member of such a set. */
HVD_API hvd_status hvd_read_counters(hvd_ctx* ctx, int32_t process_set, hvd_counters* out);

/* Since version 10: a MAC of the bytes that only the ranks of this job can make (HMAC-SHA-256, with a key that is made
 * of the job's secret; 32 bytes). A rank that is to trust what another has sent, beyond its numbers, compares it first.
 * `data` may be NULL where size_bytes is 0. */
#define HVD_MAC_BYTES 32
HVD_API hvd_status hvd_mac(hvd_ctx* ctx, const void* data, int64_t size_bytes, uint8_t* mac);

/* Rank 0 writes what becomes of each tensor from now on to the file, as Horovod's timeline (the JSON of Perfetto and
 * chrome://tracing), with its decisions where mark_cycles is not 0; other ranks do nothing. HOROVOD_TIMELINE begins one
 * with the job. HVD_INVALID while one is written; another error when the file cannot be made. */
HVD_API hvd_status hvd_timeline_start(hvd_ctx* ctx, const char* path, int32_t mark_cycles);
/* The file is complete when it returns. Not an error when none is written. */
HVD_API hvd_status hvd_timeline_stop(hvd_ctx* ctx);

/* ---- about ---- */

/* What this library can use on this machine, and what the job uses (since version 5). */
#define HVD_HAS_MPI 1     /* 1 where an MPI can be loaded */
#define HVD_USES_MPI 2    /* 1 where the ranks of this job have met by MPI, or move their data by it */
#define HVD_MPI_THREADS 3 /* 1 where MPI was started with MPI_THREAD_MULTIPLE */
#define HVD_HAS_CUDA 4    /* since version 7: 1 where this library knows GPUs, and a CUDA driver and a GPU are here */
#define HVD_HAS_NCCL 5    /* since version 7: NCCL's version, 22703 is 2.27.3, where one can be loaded */
/* since version 8: the cores that the ranks of the job may use together, where all are on one node and share memory,
 * once an operation of all of them has been done; else 0. */
#define HVD_NODE_CORES 6
/* 0: no, or no such feature. When it is not there, hvd_last_error() says why. */
HVD_API int32_t hvd_feature(hvd_ctx* ctx, int32_t feature);

/* Never NULL; valid until this thread's next failing call. */
HVD_API const char* hvd_last_error(void);
/* HVD_ABI_VERSION of the library that is loaded. */
HVD_API int32_t hvd_abi_version(void);
/* "0.1.0". Never NULL. */
HVD_API const char* hvd_version(void);

#ifdef __cplusplus
}
#endif
#endif /* HVD_HVD_H_ */
