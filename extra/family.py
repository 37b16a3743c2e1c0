"""What the shelf adds to every family: weights of other programs, models that are fetched, and adapters.

python sample.py gpt2/                          a folder in Hugging Face's layout (pretrained/)
python sample.py smollm2                        a model that is downloaded first
python sample.py gpt2/ --adapter out/mine       what was learned on top of it (adapters/)
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from extra.adapters.adapter import Change, adapter_in, base_of, fingerprint
from extra.options import ShelfSampleOptions
from extra.pretrained.read import PEFT_CONFIG, is_pretrained_folder, load_pretrained, model_type
from extra.setup import ShelfSetup
from extra.tokenizers.huggingface import GPT2_SPECIAL
from text.tokenizers import tokenizer_from_json
from tinygrad_lite.adapt import attach
from tinygrad_lite.errors import CheckpointError, OptionError, counted
from tinygrad_lite.nn import Module
from tinygrad_lite.quantize import quantize
from training.checkpoint import Checkpoint, fact_in, load_checkpoint
from training.cli.console import quoted, say
from training.corpora.fetch import cache_folder
from training.family import Family, Trained, family_of_weights
from training.folder import find_checkpoint, release_memory

BASE_FIRST = "python sample.py BASE --adapter"


@dataclass
class ShelfTrained(Trained):
    """A trained model, perhaps with an adapter.

    Attributes:
        adapter: the adapter that was folded into the weights, or is kept beside them; None if there was none.
        changes: by the names of linear maps, the changes of their matrices that are not folded in.
        documents: how the documents end that it learned from; none: it learned from a text.
        quantized: how the weights were quantized when the adapter was trained; None if they were not.
    """

    adapter: Path | None = None
    changes: dict[str, Change] = field(default_factory=dict, repr=False)
    documents: str | None = None
    quantized: str | None = None


class ShelfFamily(Family):
    """A family of models that also come from elsewhere.

    Attributes:
        layouts: other programs' layouts (pretrained/layout.py) that it reads, by the model_type in config.json.
        fetched: the modules that fetch trained models, by the models' names.
        read_peft: reads an adapter in peft's layout, if the family can.
        unexplained: what --explain shows and such a model lacks; empty if it lacks nothing.
    """

    layouts: ClassVar[Mapping[str, Any]] = {}
    fetched: ClassVar[Mapping[str, ModuleType]] = {}
    read_peft: ClassVar[Callable[[Path, Any], Any] | None] = None
    sampling = ShelfSampleOptions
    setup = ShelfSetup
    unexplained = ""

    def fetches(self, path: Path) -> bool:
        """Whether this is the name of a model that is fetched, and of nothing that exists."""
        return str(path) in self.fetched and not os.path.exists(path)

    def has(self, path: Path) -> bool:
        """Whether there is a trained model of this family at a path, or one of this name can be fetched."""
        if os.path.isdir(path) and is_pretrained_folder(path):
            return self.has_layout(model_type(path))
        return self.fetches(path) or super().has(path)

    def has_layout(self, kind: str) -> bool:
        """Whether the family reads folders of this kind."""
        return kind in self.layouts

    def read_for(self, options: Any, path: Path) -> ShelfTrained:
        """Read a trained model, with an adapter that options of sample.py name."""
        return self.read(path, Path(options.adapter) if options.adapter else None, options.quantize is not None)

    def read_start(self, path: Path) -> ShelfTrained:
        """Read a trained model for a run that starts from it; one that is fetched keeps its name."""
        trained = self.read(path)
        return replace(trained, path=path) if self.fetches(path) else trained

    def read(self, path: Path, adapter: Path | None = None, beside: bool = False) -> ShelfTrained:
        """Read a trained model, like `load`, or fetch it first.

        Args:
            path: the model; or an adapter, which stands for itself and for the base that it names.
            adapter: an adapter of this model, to be folded into its weights: the checkpoint or the folder of a run, or
                a folder in peft's layout.
            beside: do not fold in the changes of matrices: they are to stay separate from quantized ones
            (`ShelfTrained.changes`).
        Raises: CheckpointError if one of them cannot be used, or if they do not belong together.
        """
        if path.suffix == ".gguf":
            command = f"python -m extra.pretrained.gguf_file {quoted(path)} FOLDER"
            raise CheckpointError(f"{path} is a GGUF file: make a folder of it first, by {command}")
        if adapter is None and not self.fetches(path) and not is_pretrained_folder(path):
            if (path / PEFT_CONFIG).is_file():
                raise CheckpointError(f"{path} is an adapter: name its base too, as in {BASE_FIRST} {quoted(path)}")
            file = find_checkpoint(path)
            if file.is_file() and isinstance(facts := fact_in(file, "base"), dict) and facts:
                return self.adapted(self.named_base(file, facts), file, beside)
        trained = self.load(path)
        return self.adapted(trained, adapter, beside) if adapter else trained

    def read_base(self, path: Path, checkpoint: Checkpoint) -> ShelfTrained | None:
        """The base of the adapter that a run writes, if it does."""
        if not checkpoint.base:
            return None
        trained = self.named_base(path, checkpoint.base)
        self.check_base(path, checkpoint, trained)
        return trained

    def named_base(self, path: Path, facts: Mapping[str, Any]) -> ShelfTrained:
        """The base that the adapter at `path` names, which is not fetched: an untrusted file may have named it.

        Raises: CheckpointError if it is not there.
        """
        named = base_of(path, facts)["path"]
        place, problem = Path(named), f"{path} is an adapter of {named}, which is not"
        if self.fetches(place):
            place = cache_folder() / self.fetched[str(place)].FOLDER
            if not place.is_dir():
                command = f"python sample.py {named} --adapter {quoted(path)}"
                raise CheckpointError(f"{problem} in the cache, and is downloaded only if you name it: {command}")
        # An untrusted file must not make this program search a disk, or connect to a computer of its choice.
        is_near = not named.startswith(("//", "\\\\")) and os.path.exists(place)
        if not is_near or not (place.is_file() or is_pretrained_folder(place)):
            raise CheckpointError(f"{problem} there: say where its base is, as in {BASE_FIRST} {quoted(path)}")
        return self.load(place)

    def adapted(self, trained: ShelfTrained, path: Path, beside: bool = False) -> ShelfTrained:
        """A trained model with the adapter at `path`, folded into its weights or `beside` them.

        Raises: CheckpointError if it is not an adapter, or belongs to another base.
        """
        if (path / PEFT_CONFIG).is_file():
            if not self.read_peft:
                raise CheckpointError(f"{path} is in peft's layout, which is read for the GPT, not for {self.title}")
            own, adapter, about = trained, self.read_peft(path, trained.config), f"the adapter {path}"
        else:
            path = find_checkpoint(path)
            checkpoint = load_checkpoint(path)
            self.check_family(path, checkpoint)
            adapter = adapter_in(path, checkpoint)
            self.check_base(path, checkpoint, trained)
            own = self.held(path, checkpoint, trained)
            about = own.about
        for name in own.config.shape():
            ours, theirs = getattr(own.config, name), getattr(trained.config, name)
            if ours != theirs and not (name == "block_size" and ours < theirs):
                raise CheckpointError(f"{path} adapts a model with {name} {ours}, but {trained.path} has {theirs}")
        about, changes = f"{trained.about}; with {about}", adapter.changes if beside else {}
        weights = adapter.folded_into(self.fit(trained.weights, own.config), beside)
        return replace(own, path=trained.path, about=about, weights=weights, adapter=path, changes=changes)

    @staticmethod
    def check_base(path: Path, checkpoint: Checkpoint, trained: Trained) -> None:
        """Raise CheckpointError unless the adapter at `path` was trained on these weights."""
        facts = base_of(path, checkpoint.base)
        if fingerprint(trained.weights) != facts["sha256"]:
            base = f"its base was {facts['path']}, with the SHA-256 {facts['sha256'][:12]}..."
            raise CheckpointError(f"{path} was not trained on the weights of {trained.path}: {base}")

    def load(self, path: Path) -> ShelfTrained:
        """Read a whole model.

        Args:
            path: a checkpoint; a folder in one of the layouts, which has a config.json; any other folder, of whose
                newest run the best checkpoint is read; or the name of a model, which is fetched if necessary.
        Raises: CheckpointError or TokenizerError with the reason if there is none, or if it cannot be used; the errors
            of fetching.
        """
        if self.fetches(path):
            path = self.fetched[str(path)].fetched_folder()
        if self.layouts and is_pretrained_folder(path):
            return self.read_folder(path)
        return super().read(path)

    def held(self, path: Path, checkpoint: Checkpoint, base: Trained | None = None) -> ShelfTrained:
        """What a checkpoint holds: a model, or an adapter, which has the tokenizer of its `base` unless it has its own.

        Raises: CheckpointError or TokenizerError if its settings cannot be used.
        """
        if checkpoint.base and base is None:
            command = f"python -m extra.adapters.merge BASE {quoted(path)} OUT.safetensors"
            raise CheckpointError(f"{path} is an adapter, and this needs a whole model: of a GPT, {command} makes one")
        keeps = base and not checkpoint.tokenizer
        tokenizer = base.tokenizer if keeps else tokenizer_from_json(checkpoint.tokenizer)
        trained = self.described(path, checkpoint, tokenizer)
        documents, quantized = checkpoint.training.get("documents"), checkpoint.base.get("quantize")
        if documents and GPT2_SPECIAL not in tokenizer.specials:
            raise CheckpointError(f"{path} learned documents, but its tokenizer has no mark for their ends")
        return ShelfTrained(**vars(trained), documents=documents, quantized=quantized)

    def read_folder(self, folder: Path) -> ShelfTrained:
        """Read a model from a folder in Hugging Face's layout; the ids of special tokens are those of its tokenizer.

        Raises: CheckpointError or TokenizerError with the reason if it cannot be used.
        """
        title, config, weights, tokenizer = load_pretrained(folder, self.layouts)
        if tokenizer is None:
            advice = "put the tokenizer.json of its model (or its vocab.txt) next to its config.json"
            raise CheckpointError(f"{folder} has no tokenizer: {advice}")
        names = {name: config.special_token(name) for name in config.special_fields()}
        if missing := [token for token in names.values() if token not in tokenizer.specials]:
            raise CheckpointError(f"the tokenizer in {folder} has no token {missing[0]}, which a {title} needs")
        config = replace(config, **{name: tokenizer.specials[token] for name, token in names.items()})
        about = f"{folder}: {title} with {counted(self.model.blueprint(config).num_parameters(), 'parameter')}"
        return ShelfTrained(folder, about, self.model, config, tokenizer, weights)

    def make_model(self, options: Any, trained: ShelfTrained, device: str) -> Module:
        """The model on a device for sample.py; in fewer bits with --quantize.

        Raises: OptionError if the device has no such numbers; CheckpointError if an adapter does not fit the model.
        """
        if options.quantize and device != "cpu":
            raise OptionError(f"--quantize {options.quantize} is for the CPU: add --device cpu, or omit --quantize")
        model = trained.make_model(device, take=device == "cpu")
        if options.quantize:
            say(quantize(model, options.quantize).describe())
            try:
                attach(model, trained.changes)
            except ValueError as error:  # one belongs to no linear map
                raise CheckpointError(f"{trained.adapter}: {error}") from None
            release_memory()
        if (kind := trained.quantized) not in (None, options.quantize):
            exact = f"--quantize {kind} computes with exactly these"
            say(f"note: the adapter was trained on top of weights in {kind}; {exact}")
        if device == "cpu":
            trained.weights = model.state_dict()  # the model's own arrays: no second copy stays in memory
        return model


def read_any(path: Path, families: Sequence[Family]) -> Trained:
    """Read a trained model of one of these families; of a folder of runs, the best checkpoint of the newest.

    Raises: CheckpointError or TokenizerError with the reason if there is none, or if it cannot be used.
    """
    if (family := family_of_weights(path, families)) is None:
        path = find_checkpoint(path)
        family = family_of_weights(path, families) or families[0]
    return family.read(path)
