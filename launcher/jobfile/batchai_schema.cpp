// This table holds the keys of Azure Batch AI's job.json. It joins the API versions 2018-05-01, 2018-03-01 and
// 2017-09-01-preview, as published in the service's REST specification (BatchAI.json of each version) and its
// repository's schemas.
#include <array>

#include "launcher/jobfile/job_file.h"

namespace hvd::launch {
namespace {

using Type = Field::Type;

constexpr std::int64_t kMostNodes = 100'000;

constexpr std::array<const char*, 3> kBackends = {"TCP", "Gloo", "MPI"};
constexpr std::array<const char*, 2> kLanguages = {"BrainScript", "Python"};

constexpr Field kScript = {"pythonScriptFilePath", Type::kText, "the Python script", true};
constexpr Field kInterpreter = {"pythonInterpreterPath", Type::kText, "the Python interpreter; default: python"};
constexpr Field kArgs = {"commandLineArgs", Type::kText, "the script's arguments, as shell text"};
constexpr Field kProcesses = {
    "processCount", Type::kInteger, "processes on all nodes; default: nodeCount", false, nullptr, 1, kMostProcesses};

constexpr std::array kPythonFields = {kScript, kInterpreter, kArgs, kProcesses};
constexpr Schema kHorovod = {"horovodSettings", kPythonFields};
constexpr Schema kChainer = {"chainerSettings", kPythonFields};
constexpr std::array kCaffe2Fields = {kScript, kInterpreter, kArgs};
constexpr Schema kCaffe2 = {"caffe2Settings", kCaffe2Fields};

constexpr Field kCommandLine = {"commandLine", Type::kText, "shell text", true};
constexpr std::array kMpiFields = {kCommandLine, kProcesses};
constexpr Schema kCustomMpi = {"customMpiSettings", kMpiFields};
constexpr std::array kCommandFields = {kCommandLine};
constexpr Schema kCustom = {"customToolkitSettings", kCommandFields};
constexpr Schema kPreparation = {"jobPreparation", kCommandFields};

constexpr std::array kPyTorchFields = {
    kScript, kInterpreter, kArgs, kProcesses,
    Field{"communicationBackend", Type::kText, "of distributed jobs", false, nullptr, 0, 0, kBackends}};
constexpr Schema kPyTorch = {"pyTorchSettings", kPyTorchFields};

constexpr std::array kTensorFlowFields = {
    kScript,
    kInterpreter,
    Field{"masterCommandLineArgs", Type::kText, "arguments of worker 0"},
    Field{"workerCommandLineArgs", Type::kText, "arguments of the other workers"},
    Field{"parameterServerCommandLineArgs", Type::kText, "arguments of the parameter servers"},
    Field{"workerCount", Type::kInteger, "default: nodeCount", false, nullptr, 1, kMostProcesses},
    Field{"parameterServerCount", Type::kInteger, "at most nodeCount", false, nullptr, 0, kMostNodes}};
constexpr Schema kTensorFlow = {"tensorFlowSettings", kTensorFlowFields};

constexpr std::array kCntkFields = {
    Field{"languageType", Type::kText, "what the job is written in", false, nullptr, 0, 0, kLanguages},
    Field{"configFilePath", Type::kText, "a BrainScript file"},
    Field{"pythonScriptFilePath", Type::kText, "the Python script"},
    kInterpreter,
    kArgs,
    kProcesses};
constexpr Schema kCntk = {"cntkSettings", kCntkFields};

constexpr std::array kCaffeFields = {Field{"configFilePath", Type::kText, "the solver's file"},
                                     Field{"pythonScriptFilePath", Type::kText, "the Python script"}, kInterpreter,
                                     kArgs, kProcesses};
constexpr Schema kCaffe = {"caffeSettings", kCaffeFields};

constexpr std::array kIdFields = {Field{"id", Type::kText, "an ARM resource id", true}};
// These keys stand in what the service printed of a job, and in files that were made from it.
constexpr std::array kOfRecordedCluster = {"resourceGroup"};
constexpr std::array kOfRecordedJob = {"creationTime",
                                       "executionInfo",
                                       "executionState",
                                       "executionStateTransitionTime",
                                       "jobOutputDirectoryPathSegment",
                                       "provisioningState",
                                       "provisioningStateTransitionTime",
                                       "toolType"};
constexpr std::array kOfRecord = {"id", "location", "name", "resourceGroup", "tags", "type"};
constexpr Schema kCluster = {"cluster", kIdFields, kOfRecordedCluster};
constexpr Schema kVault = {"sourceVault", kIdFields};
constexpr Schema kFileServerId = {"fileServer", kIdFields};
constexpr std::array kSecretReferenceFields = {Field{"sourceVault", Type::kMap, "the key vault", true, &kVault},
                                               Field{"secretUrl", Type::kText, "the secret in the key vault", true}};
constexpr Schema kSecretReference = {"a secret's reference", kSecretReferenceFields};

constexpr std::array kStorageCredentialFields = {
    Field{"accountKey", Type::kText, "the storage account's key"},
    Field{"accountKeySecretReference", Type::kMap, "where the key is", false, &kSecretReference}};
constexpr Schema kStorageCredentials = {"credentials", kStorageCredentialFields};

constexpr Field kMountPath = {"relativeMountPath", Type::kText, "below $AZ_BATCHAI_JOB_MOUNT_ROOT", true};
constexpr Field kMountOptions = {"mountOptions", Type::kText, "as mount takes them"};
constexpr Field kStorageCredential = {"credentials", Type::kMap, "of the storage account", false, &kStorageCredentials};
constexpr std::array kShareFields = {Field{"azureFileUrl", Type::kText, "the share", true},
                                     Field{"accountName", Type::kText, "the storage account"},
                                     kStorageCredential,
                                     kMountPath,
                                     Field{"fileMode", Type::kText, "of its files"},
                                     Field{"directoryMode", Type::kText, "of its directories"}};
constexpr Schema kShare = {"azureFileShares", kShareFields};
constexpr std::array kBlobFields = {Field{"accountName", Type::kText, "the storage account", true},
                                    Field{"containerName", Type::kText, "the blob container", true}, kStorageCredential,
                                    kMountPath, kMountOptions};
constexpr Schema kBlob = {"azureBlobFileSystems", kBlobFields};
constexpr std::array kFileServerFields = {Field{"fileServer", Type::kMap, "the file server", true, &kFileServerId},
                                          Field{"sourceDirectory", Type::kText, "of the server"}, kMountPath,
                                          kMountOptions};
constexpr Schema kFileServer = {"fileServers", kFileServerFields};
constexpr std::array kUnmanagedFields = {Field{"mountCommand", Type::kText, "without the path", true}, kMountPath};
constexpr Schema kUnmanaged = {"unmanagedFileSystems", kUnmanagedFields};
constexpr std::array kVolumeFields = {
    Field{"azureFileShares", Type::kMaps, "Azure file shares", false, &kShare},
    Field{"azureBlobFileSystems", Type::kMaps, "Azure blob containers", false, &kBlob},
    Field{"fileServers", Type::kMaps, "the service's NFS servers", false, &kFileServer},
    Field{"unmanagedFileSystems", Type::kMaps, "file systems of your own", false, &kUnmanaged}};
constexpr Schema kVolumes = {"mountVolumes", kVolumeFields};

constexpr std::array kRegistryCredentialFields = {
    Field{"username", Type::kText, "of the registry", true}, Field{"password", Type::kText, "of the registry"},
    Field{"passwordSecretReference", Type::kMap, "where the password is", false, &kSecretReference}};
constexpr Schema kRegistryCredentials = {"credentials", kRegistryCredentialFields};
constexpr std::array kRegistryFields = {
    Field{"image", Type::kText, "the image", true}, Field{"serverUrl", Type::kText, "the registry"},
    Field{"credentials", Type::kMap, "of the registry", false, &kRegistryCredentials}};
constexpr Schema kRegistry = {"imageSourceRegistry", kRegistryFields};
constexpr std::array kContainerFields = {Field{"imageSourceRegistry", Type::kMap, "the image", true, &kRegistry},
                                         Field{"shmSize", Type::kText, "size of /dev/shm, as in 16gb"}};
constexpr Schema kContainer = {"containerSettings", kContainerFields};

constexpr std::array kInputFields = {Field{"id", Type::kText, "as in $AZ_BATCHAI_INPUT_<id>", true},
                                     Field{"path", Type::kText, "the directory", true}};
constexpr Schema kInput = {"inputDirectories", kInputFields};
constexpr std::array kOutputFields = {Field{"id", Type::kText, "as in $AZ_BATCHAI_OUTPUT_<id>", true},
                                      Field{"pathPrefix", Type::kText, "the directory above the job's own", true},
                                      Field{"pathSuffix", Type::kText, "the directory below the job's own"},
                                      Field{"type", Type::kText, "of 2017: model, logs, summary or custom"},
                                      Field{"createNew", Type::kBool, "of 2017: false: use the directory as it is"}};
constexpr Schema kOutput = {"outputDirectories", kOutputFields};
constexpr std::array kVariableFields = {Field{"name", Type::kText, "of the variable", true},
                                        Field{"value", Type::kTextOrNumber, "of the variable"}};
constexpr Schema kVariable = {"environmentVariables", kVariableFields};
constexpr std::array kSecretFields = {
    Field{"name", Type::kText, "of the variable", true}, Field{"value", Type::kTextOrNumber, "of the variable"},
    Field{"valueSecretReference", Type::kMap, "where the value is", false, &kSecretReference}};
constexpr Schema kSecret = {"secrets", kSecretFields};
constexpr std::array kConstraintFields = {Field{"maxWallClockTime", Type::kText, "the longest run, as in P7D"},
                                          Field{"maxRetryCount", Type::kInteger, "of 2017", false, nullptr, 0, 1000}};
constexpr Schema kConstraints = {"constraints", kConstraintFields};

constexpr std::array kJobFields = {
    Field{"nodeCount", Type::kInteger, "the nodes that the job needs", true, nullptr, 1, kMostNodes},
    Field{"minNodes", Type::kInteger, "not of the service: begins with so many, and goes on with so many", false,
          nullptr, 1, kMostNodes},
    Field{"maxNodes", Type::kInteger, "not of the service: nodes that become idle join, up to so many", false, nullptr,
          1, kMostNodes},
    Field{"stdOutErrPathPrefix", Type::kText, "the directory for what it prints", true},
    Field{"horovodSettings", Type::kMap, "a toolkit", false, &kHorovod},
    Field{"customMpiSettings", Type::kMap, "a toolkit", false, &kCustomMpi},
    Field{"customToolkitSettings", Type::kMap, "a toolkit", false, &kCustom},
    Field{"pyTorchSettings", Type::kMap, "a toolkit", false, &kPyTorch},
    Field{"tensorFlowSettings", Type::kMap, "a toolkit", false, &kTensorFlow},
    Field{"cntkSettings", Type::kMap, "a toolkit", false, &kCntk},
    Field{"caffeSettings", Type::kMap, "a toolkit", false, &kCaffe},
    Field{"caffe2Settings", Type::kMap, "a toolkit", false, &kCaffe2},
    Field{"chainerSettings", Type::kMap, "a toolkit", false, &kChainer},
    Field{"mountVolumes", Type::kMap, "what the job mounts", false, &kVolumes},
    Field{"containerSettings", Type::kMap, "the container that it runs in", false, &kContainer},
    Field{"jobPreparation", Type::kMap, "what every node does first", false, &kPreparation},
    Field{"inputDirectories", Type::kMaps, "directories with names", false, &kInput},
    Field{"outputDirectories", Type::kMaps, "directories with names", false, &kOutput},
    Field{"environmentVariables", Type::kMaps, "of the job", false, &kVariable},
    Field{"secrets", Type::kMaps, "variables that nobody sees", false, &kSecret},
    Field{"constraints", Type::kMap, "limits", false, &kConstraints},
    Field{"schedulingPriority", Type::kText, "among jobs that wait", false, nullptr, 0, 0, kPriorities},
    Field{"priority", Type::kInteger, "of 2017 and 2018-03-01", false, nullptr, -1000, 1000},
    Field{"cluster", Type::kMap, "the service's cluster", false, &kCluster},
    Field{"experimentName", Type::kText, "of 2017 and 2018-03-01"},
    Field{"location", Type::kText, "of 2017"}};
constexpr Schema kProperties = {"properties", kJobFields, kOfRecordedJob};

constexpr std::array kFileFields = {Field{"$schema", Type::kText, "for editors"},
                                    Field{"properties", Type::kMap, "the job", true, &kProperties}};
constexpr Schema kFile = {"a Batch AI job file", kFileFields, kOfRecord};

}  // namespace

const Schema& batchai_schema() {
  return kFile;
}

}  // namespace hvd::launch
