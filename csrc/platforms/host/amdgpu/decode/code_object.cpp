// SPDX-License-Identifier: MIT
// Loading an ELF code object: segments, relocations, symbols, kernel descriptors. Nothing in the file is trusted.
#include "code_object.hpp"

#include <elf.h>
#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace rocpy_host::amdgpu {

namespace {

constexpr unsigned machine_amdgpu = 224, relocation_abs64 = 3, relocation_relative64 = 13, note_metadata = 32;
constexpr uint64_t most_bytes = 1ull << 30, most_argument_bytes = 1u << 20, most_tags = 256, most_name = 1u << 16;

struct Machine {
  unsigned number;
  const char *name;
};
// EF_AMDGPU_MACH of the ELF header's flags, by LLVM's AMDGPU usage guide.
constexpr Machine machines[] = {{0x3f, "gfx90a"},         {0x4c, "gfx942"},        {0x4f, "gfx950"},
                                {0x41, "gfx1100"},        {0x46, "gfx1101"},       {0x47, "gfx1102"},
                                {0x44, "gfx1103"},        {0x48, "gfx1200"},       {0x4e, "gfx1201"},
                                {0x5f, "gfx9-4-generic"}, {0x54, "gfx11-generic"}, {0x59, "gfx12-generic"}};

// EF_AMDGPU_FEATURE_SRAMECC of the same flags, from code objects of version 4 on: 0 unsupported, then any, off, on.
// Before, a bit that says on.
bool has_error_correction(const Elf64_Ehdr &header) {
  constexpr unsigned char version4 = 2;
  if (header.e_ident[EI_ABIVERSION] < version4) {
    return (header.e_flags & 0x200) != 0;
  }
  const unsigned setting = header.e_flags >> 10 & 3;
  return setting == 1 || setting == 3;
}

class Loader {
 public:
  Loader(const uint8_t *file, size_t bytes) : file_(file), bytes_(bytes) {}

  LoadError run(CodeObject *object, std::string *reason) {
    object_ = object;
    const LoadError error = headers();
    if (error == LoadError::none && !(segments() && dynamic())) {
      *reason = reason_;
      return LoadError::malformed;
    }
    *reason = reason_;
    return error;
  }

 private:
  template <class T>
  bool at(uint64_t offset, T *value) const {
    if (offset > bytes_ || sizeof(T) > bytes_ - offset) {
      return false;
    }
    std::memcpy(value, file_ + offset, sizeof(T));
    return true;
  }
  // The same in the loaded image, by virtual address.
  template <class T>
  bool loaded(uint64_t address, T *value) const {
    if (address > object_->image_bytes || sizeof(T) > object_->image_bytes - address) {
      return false;
    }
    std::memcpy(value, object_->image + address, sizeof(T));
    return true;
  }
  bool fail(const char *why) {
    reason_ = why;
    return false;
  }

  LoadError headers() {
    if (!at(0, &header_) || std::memcmp(header_.e_ident, ELFMAG, SELFMAG) != 0) {
      reason_ = "not an ELF file";
      return LoadError::not_a_code_object;
    }
    if (header_.e_machine != machine_amdgpu) {
      reason_ = "not an ELF file for AMD GPUs";
      return LoadError::not_a_code_object;
    }
    for (const Machine &machine : machines) {
      if ((header_.e_flags & 0xff) == machine.number) {
        object_->architecture_name = machine.name;
        find_architecture(machine.name, &object_->architecture);
        object_->has_error_correction = has_error_correction(header_);
        if (header_.e_ident[EI_CLASS] != ELFCLASS64 || header_.e_phentsize != sizeof(Elf64_Phdr)) {
          reason_ = "not an ELF file of 64 bits";
          return LoadError::malformed;
        }
        return LoadError::none;
      }
    }
    reason_ = "the architecture with ELF machine flags " + std::to_string(header_.e_flags & 0xff) + " is not emulated";
    return LoadError::other_architecture;
  }

  bool segments() {
    uint64_t end = 0;
    for (unsigned k = 0; k < header_.e_phnum; ++k) {
      Elf64_Phdr segment;
      if (!at(header_.e_phoff + k * sizeof segment, &segment)) {
        return fail("program headers are cut off");
      }
      if (segment.p_type != PT_LOAD) {
        continue;
      }
      if (segment.p_memsz < segment.p_filesz || segment.p_vaddr > most_bytes || segment.p_memsz > most_bytes ||
          segment.p_offset > bytes_ || segment.p_filesz > bytes_ - segment.p_offset) {
        return fail("a segment lies outside the file");
      }
      end = std::max(end, segment.p_vaddr + segment.p_memsz);
    }
    if (end == 0) {
      return fail("no segment to load: an object that was not linked");
    }
    constexpr size_t page = 4096;
    // Zeros that the system gives when they are touched: a file that claims much costs little.
    object_->storage.reset(static_cast<uint8_t *>(std::calloc(end + page, 1)));
    if (object_->storage == nullptr) {
      return fail("its segments need more memory than there is");
    }
    const auto base = reinterpret_cast<uintptr_t>(object_->storage.get());
    object_->image = object_->storage.get() + ((base + page - 1) / page * page - base);
    object_->image_bytes = end;
    for (unsigned k = 0; k < header_.e_phnum; ++k) {
      Elf64_Phdr segment;
      at(header_.e_phoff + k * sizeof segment, &segment);
      if (segment.p_type == PT_LOAD && segment.p_filesz != 0) {
        std::memcpy(object_->image + segment.p_vaddr, file_ + segment.p_offset, segment.p_filesz);
      }
    }
    return true;
  }

  bool dynamic() {
    for (unsigned k = 0; k < header_.e_phnum; ++k) {
      Elf64_Phdr segment;
      at(header_.e_phoff + k * sizeof segment, &segment);
      if (segment.p_type == PT_DYNAMIC) {
        for (uint64_t index = 0; index < std::min(most_tags, segment.p_memsz / sizeof(Elf64_Dyn)); ++index) {
          Elf64_Dyn entry;
          if (!loaded(segment.p_vaddr + index * sizeof entry, &entry) || entry.d_tag == DT_NULL) {
            break;
          }
          if (entry.d_tag >= 0 && entry.d_tag < 40) {
            tags_[entry.d_tag] = entry.d_un.d_val;
          }
        }
        break;
      }
    }
    // Tables lie in the file, and so do the names, of which many may share the letters of one.
    const uint64_t count = symbol_count();
    if (count > bytes_ / sizeof(Elf64_Sym) || tags_[DT_RELASZ] > bytes_) {
      return fail("a table is larger than the file");
    }
    letters_left_ = 16 * bytes_ + most_name;
    for (uint64_t k = 0; k < count; ++k) {
      Elf64_Sym symbol;
      if (!loaded(tags_[DT_SYMTAB] + k * sizeof symbol, &symbol)) {
        return fail("the symbol table is cut off");
      }
      add_symbol(symbol);
      if (letters_left_ == 0) {
        return fail("the names of symbols are longer than the file");
      }
    }
    if (!relocate(tags_[DT_RELA], tags_[DT_RELASZ])) {
      return false;
    }
    notes();
    return true;
  }

  // The dynamic table has no count of symbols; the hash table does.
  uint64_t symbol_count() const {
    uint32_t counts[2] = {};
    return tags_[DT_HASH] != 0 && loaded(tags_[DT_HASH], &counts) ? counts[1] : section_symbol_count();
  }

  uint64_t section_symbol_count() const {
    for (unsigned k = 0; k < header_.e_shnum; ++k) {
      Elf64_Shdr section;
      if (at(header_.e_shoff + k * sizeof section, &section) && section.sh_type == SHT_DYNSYM) {
        return section.sh_size / sizeof(Elf64_Sym);
      }
    }
    return 0;
  }

  std::string name_of(const Elf64_Sym &symbol) {
    std::string name;
    char letter = 0;
    for (uint64_t at_name = tags_[DT_STRTAB] + symbol.st_name; loaded(at_name, &letter) && letter != 0; ++at_name) {
      name += letter;
      if (letters_left_ == 0) {
        return {};
      }
      --letters_left_;
    }
    return name;
  }

  void add_symbol(const Elf64_Sym &symbol) {
    const std::string name = name_of(symbol);
    if (name.empty() || symbol.st_shndx == SHN_UNDEF) {
      return;
    }
    if (name.size() > 3 && name.compare(name.size() - 3, 3, ".kd") == 0) {
      add_kernel(name.substr(0, name.size() - 3), symbol.st_value);
    } else if (ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT && symbol.st_value <= object_->image_bytes &&
               symbol.st_size <= object_->image_bytes - symbol.st_value) {
      object_->objects[name] = {symbol.st_value, symbol.st_size};
    }
  }

  void add_kernel(const std::string &name, uint64_t descriptor) {
    struct Descriptor {
      uint32_t shared_bytes, private_bytes, argument_bytes, reserved;
      int64_t entry;
      uint8_t reserved_bytes[20];
      uint32_t resources3, resources1, resources2;
      uint16_t properties, preload;
    } fields;
    static_assert(sizeof fields == 64, "the kernel descriptor is 64 bytes");
    if (!loaded(descriptor, &fields)) {
      return;
    }
    Kernel kernel;
    kernel.name = name;
    kernel.entry = descriptor + static_cast<uint64_t>(fields.entry);
    kernel.shared_bytes = fields.shared_bytes;
    kernel.private_bytes = fields.private_bytes;
    kernel.argument_bytes = fields.argument_bytes;
    kernel.resources1 = fields.resources1;
    kernel.resources2 = fields.resources2;
    kernel.properties = fields.properties;
    kernel.preload = fields.preload;
    kernel.lanes = !is_gfx9(object_->architecture) && (fields.properties >> 10 & 1) != 0 ? 32 : 64;
    if (kernel.entry < object_->image_bytes && kernel.entry % 4 == 0 && kernel.argument_bytes <= most_argument_bytes) {
      object_->kernels[name] = kernel;
    }
  }

  bool relocate(uint64_t table, uint64_t size) {
    for (uint64_t offset = 0; offset + sizeof(Elf64_Rela) <= size; offset += sizeof(Elf64_Rela)) {
      Elf64_Rela entry;
      if (!loaded(table + offset, &entry) || entry.r_offset > object_->image_bytes ||
          object_->image_bytes - entry.r_offset < 8) {
        return fail("a relocation lies outside the image");
      }
      uint64_t value = reinterpret_cast<uintptr_t>(object_->image) + static_cast<uint64_t>(entry.r_addend);
      const unsigned type = ELF64_R_TYPE(entry.r_info);
      if (type == relocation_abs64) {
        Elf64_Sym symbol;
        if (!loaded(tags_[DT_SYMTAB] + ELF64_R_SYM(entry.r_info) * sizeof symbol, &symbol) ||
            symbol.st_shndx == SHN_UNDEF) {
          return fail("a symbol is not defined");
        }
        value += symbol.st_value;
      } else if (type != relocation_relative64) {
        return fail("a relocation of an unknown kind");
      }
      std::memcpy(object_->image + entry.r_offset, &value, sizeof value);
    }
    return true;
  }

  void notes() {
    for (unsigned k = 0; k < header_.e_phnum; ++k) {
      Elf64_Phdr segment;
      at(header_.e_phoff + k * sizeof segment, &segment);
      if (segment.p_type != PT_NOTE || segment.p_offset > bytes_ || segment.p_filesz > bytes_ - segment.p_offset) {
        continue;
      }
      uint64_t offset = segment.p_offset, end = segment.p_offset + segment.p_filesz;
      Elf64_Nhdr note;
      while (offset + sizeof note <= end && at(offset, &note)) {
        const uint64_t name = offset + sizeof note, text = name + (note.n_namesz + 3ull) / 4 * 4;
        if (text > end || note.n_descsz > end - text) {
          break;
        }
        if (note.n_type == note_metadata) {
          read_metadata(file_ + text, note.n_descsz, &object_->kernels);
        }
        offset = text + (note.n_descsz + 3ull) / 4 * 4;
      }
    }
  }

  const uint8_t *file_;
  size_t bytes_;
  CodeObject *object_ = nullptr;
  Elf64_Ehdr header_{};
  uint64_t tags_[40] = {}, letters_left_ = 0;
  std::string reason_;
};

// hipModuleLoadData is given no size: the section headers, which come last, or the segments tell it.
size_t size_of_file(const uint8_t *file) {
  Elf64_Ehdr header;
  std::memcpy(&header, file, sizeof header);
  uint64_t end = header.e_shoff + static_cast<uint64_t>(header.e_shnum) * sizeof(Elf64_Shdr);
  end = std::max<uint64_t>(end, header.e_phoff + static_cast<uint64_t>(header.e_phnum) * sizeof(Elf64_Phdr));
  return static_cast<size_t>(std::min<uint64_t>(end, most_bytes));
}

}  // namespace

std::shared_ptr<CodeObject> load_code_object(const void *image, size_t bytes, LoadError *error, std::string *reason) {
  const auto *file = static_cast<const uint8_t *>(image);
  auto object = std::make_shared<CodeObject>();
  *error = Loader(file, bytes != 0 ? bytes : size_of_file(file)).run(object.get(), reason);
  return *error == LoadError::none ? object : nullptr;
}

}  // namespace rocpy_host::amdgpu
