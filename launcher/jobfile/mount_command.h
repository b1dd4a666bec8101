// How what a job file mounts is really mounted, where its cluster says how: by each process of the job for itself, in a
// mount namespace that ends with the process, and with it the mount: also when hvdrun, its agent and its guardian are
// all killed, and without anybody who would have to unmount. Other processes of the node see nothing of it. Shell text,
// for bash; the choice of helper is made on the node. Pure.
//
// Root has a mount namespace of its own. Anybody else may have one inside of a user namespace, in which only what needs
// no rights on the machine can be mounted (FileSystem::is_for_all), and goes on in a second one that has the user's own
// number again.
//
// Passwords come by the environment (mount_variables), and from there to no command line: for mount.cifs into a file in
// a file system of the namespace's own, in memory; for blobfuse into its environment.
#pragma once

#include <string>

#include "launcher/job/tunable.h"
#include "launcher/jobfile/job_run.h"
#include "launcher/jobfile/job_texts.h"

namespace hvd::launch {

bool has_real_mounts(const JobRun& run);

// `text` itself when nothing is really mounted; else text that runs it where all is, in its own process.
std::string in_mounts(const JobRun& run, const std::string& text, JobTexts& texts);

// What in_mounts() reads, for the environment of whatever runs its text.
Settings mount_variables(const JobRun& run);

// "nfs server:/export", for messages and plans.
std::string described(const FileSystem& system);

}  // namespace hvd::launch
