// These functions make the shell text that mounts the file systems which the cluster's file describes. Each process of
// the job mounts them for itself, in a mount namespace that the kernel removes with the process. So nobody has to
// unmount anything, even when hvdrun, its agent and its guardian are all killed. Other processes of the node do not see
// the mounts. The text is for bash; the choice of helper is made on the node. Pure.
//
// Root may make a mount namespace directly. Any other user needs a user namespace around it, in which only file systems
// that need no rights on the machine can be mounted (FileSystem::is_for_all). The process then goes on in a second user
// namespace, which restores the user's own number.
//
// Passwords come through the environment (mount_variables) and reach no command line. For mount.cifs they go to a file
// in an in-memory file system of the namespace, for blobfuse to its environment.
#pragma once

#include <string>

#include "launcher/job/tunable.h"
#include "launcher/jobfile/job_run.h"
#include "launcher/jobfile/job_texts.h"

namespace hvd::launch {

bool has_real_mounts(const JobRun& run);

// Returns `text` itself when nothing is mounted; else text that mounts everything and runs `text`, in a separate
// process.
std::string in_mounts(const JobRun& run, const std::string& text, JobTexts& texts);

// Returns the variables that in_mounts() reads, for the environment of whatever runs its text.
Settings mount_variables(const JobRun& run);

// Returns "nfs server:/export", for messages and plans.
std::string described(const FileSystem& system);

}  // namespace hvd::launch
