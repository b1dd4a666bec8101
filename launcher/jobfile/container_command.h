// These functions make the shell text that runs a step of a job inside the container that its file names. It uses
// podman, docker or apptainer, whichever the node has. The same bash runs it that runs steps without a container, and
// the choice is made on the node. Pure.
//
// Under podman and docker each process has a container of its own, so that signals reach it and the container ends with
// it. What jobPreparation installed is committed from its container to an image, which is removed after the job. Under
// apptainer a container is an ordinary process; what jobPreparation installed is in an overlay.
#pragma once

#include <cstdint>
#include <string>

#include "launcher/jobfile/job_run.h"
#include "launcher/jobfile/job_texts.h"

namespace hvd::launch {

enum class ContainerStep : std::uint8_t { kPreparation, kProcess };

// Returns `text` itself when the job names no image, or none is wanted. `number` is that of the node, or of the
// process.
std::string in_container(const JobRun& run, const std::string& text, ContainerStep step, int number, JobTexts& texts);
// Returns text that fetches the image, before anything needs it.
std::string fetch_image(const JobRun& run);
// Returns text for bash that ends and removes what is left of the run's containers on a node.
std::string remove_containers(const JobRun& run);

// Returns "auto", "podman", ...
const char* container_word(ContainerChoice choice);

}  // namespace hvd::launch
