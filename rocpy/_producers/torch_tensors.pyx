# SPDX-License-Identifier: MIT
"""torch tensors as operands: the fast reading of plain tensors, and what to do about the others.

torch's exchange table hands out raw memory without a word about gradients, lazy conjugation or active transforms, so that each
tensor is checked here first. The checks call torch's own C getters without going through attribute lookup.
"""

import sys

from rocpy._producers.torch_copies import aligned_copy, resolved
from rocpy._producers.torch_modes import gradient_reason, is_batched, kind_reason, nothing_traces, recording_reason, state_reason
from rocpy._producers.torch_refusals import TorchLayerRequired, advice, is_unreadable, refuse_layout
from rocpy.errors import InvalidOperandError, UnsupportedError

from cpython.dict cimport PyDict_GetItem
from cpython.exc cimport PyErr_Clear
from cpython.object cimport Py_TYPE, PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport uint64_t

from rocpy._dlpack cimport (
    DLTensor, array_type_of_hip, describe_type, exchange_api, fault_message, fault_misaligned, fault_none, kDLComplex, operand_of_dltensor,
    provider_torch,
)
from rocpy.runtime.handles.call_stream cimport note_write

cdef extern from "Python.h":
    ctypedef PyObject* (*getter)(PyObject*, void*) noexcept
    ctypedef PyObject* (*PyCFunction)(PyObject*, PyObject*) noexcept
    ctypedef struct PyGetSetDef:
        getter get
        void* closure
    ctypedef struct PyGetSetDescrObject:
        PyGetSetDef* d_getset
    ctypedef struct PyMethodDef:
        PyCFunction ml_meth
        int ml_flags
    ctypedef struct PyMethodDescrObject:
        PyMethodDef* d_method
    ctypedef struct PyCFunctionObject:
        PyMethodDef* m_ml
        PyObject* m_self

    PyTypeObject PyGetSetDescr_Type
    PyTypeObject PyMethodDescr_Type
    bint PyCFunction_CheckExact(object)
    int METH_NOARGS
    PyObject* Py_True
    PyObject* Py_False

cdef extern from "torch_state.hpp" namespace "rocpy" nogil:
    cppclass DispatchKeys:
        uint64_t included
        uint64_t excluded

    const DispatchKeys* torch_dispatch_keys()
    bint torch_state_open(const void* function)
    void torch_state_close()
    bint torch_grad_may_be_on()
    bint torch_state_is_clear()
    void torch_state_mark_clear()
    bint torch_find_tensor_keys(const void** objects, const uint64_t* impls, const uint64_t* keys, int count, uint64_t impl_offset)
    bint torch_tensor_is_clear(const void* array)
    void torch_tensor_mark_clear(const void* array)
    void torch_forget_tensor_keys()
    cppclass ImplWords:
        pass

    ImplWords torch_words_of(const void* object)
    bint torch_find_autograd(const ImplWords& before, const ImplWords& after, const void* plain, const void* parameter)
    bint torch_tensor_without_autograd(const void* array)
    bint torch_key_offsets(uint64_t* impl, uint64_t* keys)
    bint torch_state_is_open()
    bint torch_keys_are_known()
    bint torch_autograd_is_known()


cdef class GetSet:
    """One attribute of torch's tensor type, read through its C getter."""

    cdef object descriptor
    cdef PyGetSetDef* definition

    def __init__(self, descriptor):
        if Py_TYPE(descriptor) != &PyGetSetDescr_Type:
            raise UnsupportedError(f"torch's attribute {descriptor!r} is not the C getter that rocpy expects; please report this torch version")
        self.descriptor = descriptor
        self.definition = (<PyGetSetDescrObject*><PyObject*>descriptor).d_getset

    cdef inline PyObject* read(self, object array) noexcept:
        return self.definition.get(<PyObject*>array, self.definition.closure)


cdef class Method:
    """One method without arguments, of torch's tensor type or of its C module, called through its C function."""

    cdef object target
    cdef PyCFunction function
    cdef PyObject* owner

    def __init__(self, target):
        cdef PyMethodDef* definition
        self.target = target
        self.owner = NULL
        if Py_TYPE(target) == &PyMethodDescr_Type:
            definition = (<PyMethodDescrObject*><PyObject*>target).d_method
        elif PyCFunction_CheckExact(target):
            definition = (<PyCFunctionObject*><PyObject*>target).m_ml
            self.owner = (<PyCFunctionObject*><PyObject*>target).m_self
        else:
            raise UnsupportedError(f"torch's {target!r} is not the C function that rocpy expects; please report this torch version")
        if definition.ml_flags != METH_NOARGS:
            raise UnsupportedError(f"torch's {target!r} has other parameters than rocpy expects; please report this torch version")
        self.function = definition.ml_meth

    cdef inline PyObject* call_on(self, object array) noexcept:
        return self.function(<PyObject*>array, NULL)

    cdef inline PyObject* call(self) noexcept:
        return self.function(self.owner, NULL)


tensor_type = parameter_type = NULL
torch_api = NULL
cdef object torch = None
cdef GetSet requires_grad = None
cdef Method is_neg = None, is_conj = None, is_inference = None
cdef object increment_version = None
cdef Method grad_enabled = None
cdef dict forward_mode = None  # the names of torch.autograd.forward_ad
cdef object no_level = -1  # what it has for "no dual level is entered"


cdef inline bint forward_mode_is_on() noexcept:
    """Whether tangents may be about: they are no part of a tensor's key set, nor of the thread's state."""
    return PyDict_GetItem(forward_mode, "_current_level") != <PyObject*>no_level


cdef inline int truth(PyObject* value) noexcept:
    """1 or 0 for True or False; -1 for anything else, an exception included (which is cleared)."""
    if value == NULL:
        PyErr_Clear()
        return -1
    Py_XDECREF(value)
    if value == Py_False:
        return 0
    return 1 if value == Py_True else -1


cdef bint state_proven():
    """Whether the masks that were found move as torch says they do, in two states that torch's own functions set."""
    cdef const DispatchKeys* keys = torch_dispatch_keys()
    cdef DispatchKeys plain
    included_set = getattr(torch._C, "_dispatch_tls_local_include_set", None)
    excluded_set = getattr(torch._C, "_dispatch_tls_local_exclude_set", None)
    if included_set is None or excluded_set is None or keys == NULL:
        return False
    plain = keys[0]
    included, excluded = included_set().raw_repr(), excluded_set().raw_repr()
    for change in (lambda: torch.autocast("cpu", dtype=torch.bfloat16, enabled=not torch.is_autocast_enabled("cpu")),
                   lambda: torch.inference_mode(not torch.is_inference_mode_enabled())):
        with change():
            if keys.included == plain.included and keys.excluded == plain.excluded:
                return False
            if (keys.included ^ plain.included) != <uint64_t>(included_set().raw_repr() ^ included):
                return False
            if (keys.excluded ^ plain.excluded) != <uint64_t>(excluded_set().raw_repr() ^ excluded):
                return False
    for enabled in (False, True):
        with torch.set_grad_enabled(enabled):
            if torch_grad_may_be_on() != enabled:
                return False
    return keys.included == plain.included and keys.excluded == plain.excluded


cdef bint state_sought = False  # whether the thread's dispatch state has been looked for


cdef int seek_state() except -1:
    """Find this thread's dispatch state in torch; where that fails, torch's functions are asked each time."""
    global state_sought
    if not nothing_traces():
        return 0
    state_sought = True
    try:
        if torch_state_open(<const void*>torch_api.dltensor_from_py_object_no_sync) and not state_proven():
            torch_state_close()
    except Exception:
        torch_state_close()
    return 0


cdef bint keys_sought = False  # whether the place of a tensor's key set has been looked for


cdef int seek_keys() except -1:
    """Find the key set in torch's tensors, on samples that differ in it; where that fails, torch's methods are asked each time."""
    global keys_sought
    if not nothing_traces():
        return 0
    keys_sought = True
    try:
        find_keys()
    except Exception:
        # Only speed is lost: a mode or another torch in which the samples cannot be made.
        torch_forget_tensor_keys()
    return 0


cdef int find_keys() except -1:
    cdef const void* objects[5]
    cdef uint64_t impls[5]
    cdef uint64_t keys[5]
    told = getattr(torch._C, "_dispatch_keys", None)
    if told is None or torch.Tensor.__basicsize__ < sizeof(PyObject) + 8:
        return 0
    plain = torch.zeros(1, device="cpu")
    conjugated = torch.zeros(1, dtype=torch.complex64, device="cpu").conj()
    samples = (plain, torch._neg_view(plain), conjugated, torch.zeros(1, device="meta"), torch.nn.Parameter(plain))
    for i, sample in enumerate(samples):
        objects[i] = <const void*><PyObject*>sample
        impls[i] = sample._cdata
        keys[i] = told(sample).raw_repr()
    if torch_find_tensor_keys(objects, impls, keys, 5, sizeof(PyObject)):
        find_autograd(objects[0], objects[4])
    return 0


cdef int find_autograd(const void* plain, const void* parameter) except -1:
    cdef ImplWords before, after
    with torch.inference_mode(False):
        leaf = torch.zeros(1, device="cpu")
        before = torch_words_of(<const void*><PyObject*>leaf)
        leaf.requires_grad_()
        after = torch_words_of(<const void*><PyObject*>leaf)
    torch_find_autograd(before, after, plain, parameter)
    return 0


cdef inline bint is_known_to_autograd(object array) noexcept:
    """Whether a tensor may require a gradient or carry a tangent."""
    return not torch_tensor_without_autograd(<const void*><PyObject*>array)


cdef inline bint is_recorded(object array) noexcept:
    """Whether autograd records what is done with such a tensor here; an unknown answer counts as yes."""
    return torch_grad_may_be_on() and truth(requires_grad.read(array)) != 0 and truth(grad_enabled.call()) != 0


cdef bint is_recorded_here(object array) noexcept:
    return is_plain_tensor(array) and is_known_to_autograd(array) and is_recorded(array)


cdef bint key_offsets(uint64_t* impl, uint64_t* keys) noexcept:
    return torch_key_offsets(impl, keys)


cdef bint learn(object cls) except -1:
    """Get to know torch at the sight of its first tensor type. False where `cls` is no tensor type of an imported torch."""
    global torch, tensor_type, parameter_type, torch_api, requires_grad, is_neg, is_conj, is_inference, increment_version
    global grad_enabled, forward_mode
    if tensor_type != NULL and (<void*>cls == tensor_type or <void*>cls == parameter_type):
        return True
    module = sys.modules.get("torch")
    base = getattr(module, "Tensor", None)
    if base is None or not isinstance(base, type) or not issubclass(cls, base):
        return False
    if tensor_type != NULL:
        return True
    torch = module
    api = exchange_api(base)
    if api == NULL or api.dltensor_from_py_object_no_sync == NULL:
        raise UnsupportedError(f"torch {module.__version__} has no DLPack exchange table on torch.Tensor; rocpy needs torch 2.10 or later")
    parameter = module.nn.Parameter
    attributes = module._C.TensorBase.__dict__
    requires_grad = GetSet(attributes["requires_grad"])
    is_neg = Method(attributes["is_neg"])
    is_conj = Method(attributes["is_conj"])
    is_inference = Method(attributes["is_inference"])
    increment_version = module._C._increment_version
    grad_enabled = Method(module.is_grad_enabled)
    forward_mode = module.autograd.forward_ad.__dict__
    torch_api = api
    seek_state()
    Py_INCREF(parameter)
    parameter_type = <void*>parameter
    Py_INCREF(base)
    tensor_type = <void*>base
    return True


cdef bint is_clear(object array) noexcept:
    return torch_tensor_is_clear(<const void*><PyObject*>array)


cdef int parse_plain(object array, Operand* out) except -1:
    """Read an exact Tensor or Parameter. 1: done; 0: something about it or about torch's state needs a closer look."""
    cdef DLTensor tensor
    cdef bint known
    if not torch_state_is_clear() and not state_harmless(array):
        return 0
    known = torch_tensor_is_clear(<const void*><PyObject*>array)
    if torch_api.dltensor_from_py_object_no_sync(<void*>array, &tensor) != 0:
        PyErr_Clear()
        return 0
    if operand_of_dltensor(tensor, out) != fault_none:
        return 0
    if is_known_to_autograd(array) and (is_recorded(array) or forward_mode_is_on()):
        return 0
    if not known:
        if truth(is_neg.call_on(array)) != 0:
            return 0
        if array_type_of_hip(out.type).code == kDLComplex and truth(is_conj.call_on(array)) != 0:
            return 0
        if not keys_sought:
            seek_keys()
        # A complex tensor's set without the conjugate key is that of a real one: the type is no part of it.
        torch_tensor_mark_clear(<const void*><PyObject*>array)
    out.provider = provider_torch
    out.read_only = False
    return 1


cdef int access_of(object array) except -1:
    """0: torch's dispatcher must see this tensor; 1: its memory may be used; 2: that too, but the use must be recorded."""
    if not is_plain_tensor(array):
        if not learn(type(array)) or not is_plain_tensor(array):
            return 0
    if not torch_state_is_clear() and not state_harmless(array):
        return 0
    if not torch_tensor_is_clear(<const void*><PyObject*>array):
        if torch._C._functorch.is_functorch_wrapped_tensor(array) or torch._is_functional_tensor(array) or array.is_meta:
            return 0
        if is_batched(array):
            return 0
        if array.is_conj() or array.is_neg() or array.layout is not torch.strided or array.is_nested or array.is_quantized:
            return 0
        if not keys_sought:
            seek_keys()
        torch_tensor_mark_clear(<const void*><PyObject*>array)
    if is_known_to_autograd(array) and is_recorded(array):
        return 2
    return 1


cdef bint torch_is_first(PyObject* a, PyObject* b, PyObject* c, PyObject* bias) except -1:
    """Whether torch must see a product of plain tensors a and b: what is seen here at little cost. Reading the operands finds the rest."""
    if not (torch_state_is_clear() or state_harmless(<object>a)):
        return True
    return is_recorded_here(<object>a) or is_recorded_here(<object>b) or is_recorded_here(<object>c) or is_recorded_here(<object>bias)


def route(*operands):
    """How the operands of a product can be used; for rocpy.torch.

    Parameters
    ----------
    *operands
        Tensors; others than the first two may be ``None``.

    Returns
    -------
    int
        0: torch's dispatcher must see them; 1: their memory may be used; 2: that too, but autograd must record it.
    """
    cdef int access = 1, own
    for i, operand in enumerate(operands):
        own = 1 if operand is None and i >= 2 else access_of(operand)
        if own == 0:
            return 0
        access |= own
    if forward_mode_is_on():
        return 0
    return 1 if access == 1 else 2


cdef bint state_harmless(object array):
    if state_reason(array) is not None:
        return False
    if not state_sought:
        seek_state()
    # The masks do not say for which device autocast is on, so that only a state without any is worth remembering.
    if not torch._C._is_any_autocast_enabled():
        torch_state_mark_clear()
    return True


cdef object dispatch_reason(object array, bint is_product=True):
    """Why a tensor must go through torch's dispatcher rather than by its memory, as text; None where it need not."""
    if not learn(type(array)):
        return None
    functorch = torch._C._functorch
    if not is_plain_tensor(array):
        return kind_reason(array)
    if functorch.is_functorch_wrapped_tensor(array):
        return "it is wrapped by a torch.func transform (vmap, grad, ...)"
    if torch._is_functional_tensor(array):
        return "it is a functional tensor of a compiler"
    if is_batched(array):
        return "it is one entry of a batch (vectorize=True, is_grads_batched=True)"
    return state_reason(array, is_product) or kind_reason(array) or gradient_reason(array)


cdef int refuse_recorded(object array, str name) except -1:
    """Refuse a tensor that was read before, where a product of it would now be recorded by something that does not see it."""
    if (torch_state_is_clear() or state_harmless(array)) and not (
            is_known_to_autograd(array) and (is_recorded(array) or forward_mode_is_on())):
        return 0
    # Autocast would not change a product that was planned, and to torch.func's transforms such a product is a constant.
    reason = recording_reason() or gradient_reason(array)
    if reason is not None:
        raise TorchLayerRequired(f"{name}: {reason}; {advice(reason)}")
    return 0


cdef object parse_other(object array, str name, Operand* out, bint is_product=True):
    """Read a tensor that the fast path left: resolve what can be resolved, refuse the rest by name. Gives what to keep alive."""
    cdef DLTensor tensor
    cdef bint copied = False
    cdef int fault
    reason = None if is_unreadable(array) else dispatch_reason(array, is_product)  # those are refused below
    if reason is not None:
        raise TorchLayerRequired(f"{name}: {reason}; {advice(reason)}")
    refuse_layout(array, name)
    with torch.no_grad():
        plain = resolved(array)
        array, copied = plain, plain is not array
    if torch_api.dltensor_from_py_object_no_sync(<void*>array, &tensor) != 0:
        try:
            raise_pending()
        except Exception as error:
            raise InvalidOperandError(
                f"{name}: torch.Tensor of {tuple(array.shape)}, {array.dtype} on {array.device} cannot be read as memory: "
                f"{str(error).partition(chr(10))[0]}"
            ) from error
    fault = operand_of_dltensor(tensor, out)
    if fault == fault_misaligned:
        with torch.no_grad():
            array, copied = aligned_copy(array), True
        torch_api.dltensor_from_py_object_no_sync(<void*>array, &tensor)
        fault = operand_of_dltensor(tensor, out)
    if fault != fault_none:
        why = fault_message(fault).decode()
        raise InvalidOperandError(
            f"{name}: torch.Tensor of {tuple(array.shape)}, {describe_type(tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes)} "
            f"on {array.device}: {why}"
        )
    out.provider = provider_torch
    out.copied = copied
    out.read_only = copied
    return array


cdef int raise_pending() except -1:
    """Let the exception that a C call left come out."""
    return -1


cdef int check_writable(object array, str name) except -1:
    """Refuse a tensor that torch itself would not let anyone write to here."""
    if array.is_inference() and not torch.is_inference_mode_enabled():
        raise InvalidOperandError(
            f"{name}: it is an inference tensor, which can only be written inside torch.inference_mode(); pass its .clone()"
        )
    return 0


cdef int raise_version(object array) except -1:
    """Tell autograd that the tensor was written; inference tensors have no version to raise."""
    if truth(is_inference.call_on(array)) == 0:
        increment_version((array,))
        note_write(array)
    return 0


def shortcuts(use=None):
    """Tell, and for tests choose, whether torch's state and tensors are read directly rather than asked for by torch's functions.

    Parameters
    ----------
    use : bool, optional
        Take the shortcuts where they can be proven, or none of them.

    Returns
    -------
    tuple of bool
        Whether each of the three is in use, from the next tensor on: the state, key sets, and whether autograd knows a tensor.
    """
    global keys_sought, state_sought
    if use is not None and torch_api != NULL:
        torch_state_close()
        torch_forget_tensor_keys()
        keys_sought = state_sought = True
        if use:
            seek_state()
            seek_keys()
    return torch_state_is_open(), torch_keys_are_known(), torch_autograd_is_known()
