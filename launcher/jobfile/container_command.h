// How a step of a job runs inside the container that its file names: by podman, docker or apptainer, whichever the node
// has. Shell text, for the same bash that runs what needs no container; the choice is made on the node. Pure.
//
// Of podman and docker each process has a container of its own, so that signals reach it and its end is the process's;
// what jobPreparation installed is in an image that is committed from its container, and removed after the job.
// apptainer's containers are processes anyway; what jobPreparation installed is in an overlay.
#pragma once

#include <cstdint>
#include <string>

#include "launcher/jobfile/job_run.h"
#include "launcher/jobfile/job_texts.h"

namespace hvd::launch {

enum class ContainerStep : std::uint8_t { kPreparation, kProcess };

// `text` itself when the job names no image, or none is wanted. `number`: of the node, or of the process.
std::string in_container(const JobRun& run, const std::string& text, ContainerStep step, int number, JobTexts& texts);
// Fetches the image, before anything needs it.
std::string fetch_image(const JobRun& run);
// For bash: ends and removes what is left of the run's containers on a node.
std::string remove_containers(const JobRun& run);

// "auto", "podman", ...
const char* container_word(ContainerChoice choice);

}  // namespace hvd::launch
