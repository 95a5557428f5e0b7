/* SPDX-License-Identifier: MIT */
/* A hipRTC whose "code objects" are libraries for this CPU: it gives the source to the system's C++ compiler, behind
 * grid.hpp. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "types.h"

struct _hiprtcProgram {
  char *source, *code, name[128], log[4096];
  size_t bytes;
};

const char *hiprtcGetErrorString(hiprtcResult result) {
  return result == HIPRTC_ERROR_COMPILATION ? "HIPRTC_ERROR_COMPILATION" : "HIPRTC_ERROR_INVALID_INPUT";
}

hiprtcResult hiprtcVersion(int *major, int *minor) {
  *major = 7;
  *minor = 2;
  return HIPRTC_SUCCESS;
}

hiprtcResult hiprtcCreateProgram(hiprtcProgram *program, const char *source, const char *name, int header_count,
                                 const char *const *headers, const char *const *include_names) {
  if (!source || !name || header_count || headers || include_names) return HIPRTC_ERROR_INVALID_INPUT;
  *program = calloc(1, sizeof **program);
  (*program)->source = strdup(source);
  snprintf((*program)->name, sizeof(*program)->name, "%s", name);
  *strchr((*program)->name, '.') = '\0';
  return HIPRTC_SUCCESS;
}

static size_t read_file(const char *path, char **text) {
  FILE *file = fopen(path, "rb");
  long bytes;
  if (!file) return 0;
  fseek(file, 0, SEEK_END);
  bytes = ftell(file);
  rewind(file);
  *text = malloc((size_t)bytes + 1);
  bytes = (long)fread(*text, 1, (size_t)bytes, file);
  (*text)[bytes] = '\0';
  fclose(file);
  return (size_t)bytes;
}

hiprtcResult hiprtcCompileProgram(hiprtcProgram program, int option_count, const char *const *options) {
  char folder[256], path[288], command[1536], *text = NULL;
  int i, arch = 0, status;
  FILE *file;
  snprintf(folder, sizeof folder, "%s/XXXXXX", getenv("CODE_PLATFORM_FOLDER"));
  for (i = 0; i < option_count; ++i) arch |= strcmp(options[i], "--offload-arch=gfx942") == 0;
  if (!arch || !mkdtemp(folder)) return HIPRTC_ERROR_INVALID_OPTION;
  snprintf(path, sizeof path, "%s/k.cpp", folder);
  file = fopen(path, "w");
  fprintf(file, "#include \"%s\"\n%s\nRUN(%s)\n", getenv("CODE_PLATFORM_GRID"), program->source, program->name);
  fclose(file);
  snprintf(command, sizeof command,
           "%s -std=c++17 -O1 -shared -fPIC -ffp-contract=off -Wall -Werror -Wno-unused-function -o %s/k.so %s > "
           "%s/log 2>&1",
           getenv("CODE_PLATFORM_CXX"), folder, path, folder);
  status = system(command);
  snprintf(path, sizeof path, "%s/log", folder);
  if (read_file(path, &text)) snprintf(program->log, sizeof program->log, "%s", text);
  free(text);
  snprintf(path, sizeof path, "%s/k.so", folder);
  program->bytes = status == 0 ? read_file(path, &program->code) : 0;
  snprintf(command, sizeof command, "rm -r %s", folder);
  return system(command) != 0 || !program->bytes ? HIPRTC_ERROR_COMPILATION : HIPRTC_SUCCESS;
}

hiprtcResult hiprtcDestroyProgram(hiprtcProgram *program) {
  free((*program)->source);
  free((*program)->code);
  free(*program);
  *program = NULL;
  return HIPRTC_SUCCESS;
}

hiprtcResult hiprtcGetProgramLogSize(hiprtcProgram program, size_t *bytes) {
  *bytes = strlen(program->log) + 1;
  return HIPRTC_SUCCESS;
}

hiprtcResult hiprtcGetProgramLog(hiprtcProgram program, char *log) {
  strcpy(log, program->log);
  return HIPRTC_SUCCESS;
}

hiprtcResult hiprtcGetCodeSize(hiprtcProgram program, size_t *bytes) {
  *bytes = program->bytes;
  return HIPRTC_SUCCESS;
}

hiprtcResult hiprtcGetCode(hiprtcProgram program, char *code) {
  memcpy(code, program->code, program->bytes);
  return HIPRTC_SUCCESS;
}
